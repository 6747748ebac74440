"""A page, read as a browser reads it."""

from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser


@dataclass(frozen=True, slots=True)
class Tree:
    """What a selector finds in a page."""

    tree: LexborHTMLParser

    def texts(self, css: str) -> list[str]:
        """The texts of all that it finds."""
        return [node.text() for node in self.tree.css(css)]

    def values(self, css: str, attribute: str) -> list[str]:
        """The values of an attribute, empty where it is not there."""
        return [node.attributes.get(attribute) or "" for node in self.tree.css(css)]

    def text(self, css: str) -> str:
        """The text of the first, which must be there."""
        return self.texts(css)[0]

    def value(self, css: str, attribute: str) -> str:
        """The value of the first, which must be there."""
        return self.values(css, attribute)[0]

    def elements(self) -> list[tuple[str, dict[str, str | None]]]:
        """All elements with their attributes."""
        return [(str(node.tag), dict(node.attributes)) for node in self.tree.css("*")]


def read(html: str) -> Tree:
    """The page; fails on half a letter."""
    return Tree(LexborHTMLParser(html.encode().decode()))
