"""What files of rules hold, by name, and how the texts of strangers are shown."""

from collections.abc import Iterable

from sterna.crawler.clp import Construct
from sterna.crawler.rules import check_rules
from sterna.model import Record, Source


class RuleFile(Record, frozen=True, array_like=False):
    """A file of rules and the names of what it defines."""

    file: str
    rules: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The file in one line."""
        kinds = (
            ("rules", self.rules),
            ("templates", self.templates),
            ("functions", self.functions),
            ("facts", self.facts),
        )
        named = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names)
        return f"{self.file}: {named or 'nothing'}"


def outline(sources: tuple[Source, ...]) -> list[RuleFile]:
    """The files one by one; RulesError if they cannot be read."""
    constructs = check_rules(sources)
    return [
        _outlined(source.name, [each for each in constructs if each.file == source.name])
        for source in sources
    ]


def _outlined(file: str, constructs: Iterable[Construct]) -> RuleFile:
    named: dict[str, tuple[str, ...]] = {}
    for construct in constructs:
        named[construct.kind] = (*named.get(construct.kind, ()), construct.name)
    return RuleFile(
        file,
        rules=named.get("defrule", ()),
        templates=named.get("deftemplate", ()),
        functions=named.get("deffunction", ()),
        facts=named.get("deffacts", ()),
    )


def printable(text: str) -> str:
    """The text with nothing in it that a terminal would obey."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
