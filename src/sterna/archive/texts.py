"""Texts as files can hold them."""


def clean(text: str) -> str:
    """The text with lone surrogates replaced: a page can hold them, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
