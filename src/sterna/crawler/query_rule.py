"""A simple SELECT as a rule that an inference engine runs over facts (Fiedler-Hammer 4.6.2).

For each fact that matches, the rule asserts a fact QUERY_RESULT of names and values in turn. An engine keeps
no two facts that are the same, so rows that are the same come once.
"""

import re
from collections.abc import Mapping, Sequence

from sterna.crawler.simple import Comparison, read_simple
from sterna.errors import UsageError

RESULT = "QUERY_RESULT"

_SYMBOL = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def query_rule(sql: str, template_slots: Mapping[str, Sequence[str]]) -> str:
    """The rule for a query over one template; `template_slots` has the slots of each that hold one value."""
    query = read_simple(sql)
    template, slots = _template(query.table, template_slots)
    wanted = [_slot(column, slots) for column in query.columns] if query.columns else list(slots)
    tests: dict[str, list[str]] = {}
    for each in query.comparisons:
        slot = _slot(each.column, slots)
        tests.setdefault(slot, []).append(_test(slot, each))
    patterns = [
        f"({slot} {'&'.join([f'?{slot}', *tests.get(slot, ())])})"
        for slot in dict.fromkeys([*wanted, *tests])
    ]
    results = " ".join(f"{slot} ?{slot}" for slot in wanted)
    return f"(defrule Query\n  ({template} {' '.join(patterns)})\n  =>\n  (assert ({RESULT} {results})))"


def _template(name: str, known: Mapping[str, Sequence[str]]) -> tuple[str, Sequence[str]]:
    for template, slots in known.items():
        if template.lower() == name.lower():
            for symbol in (template, *slots):
                if not _SYMBOL.fullmatch(symbol):
                    raise UsageError(
                        f"{symbol!r} cannot stand in a rule: a name has letters, digits, '-' and '_'"
                    )
            return template, slots
    raise UsageError(f"there is no template {name!r}: there are {', '.join(known)}")


def _slot(column: str, slots: Sequence[str]) -> str:
    """The slot that a column means: SQL writes content_type for what CLIPS calls content-type."""
    for slot in slots:
        if slot.lower().replace("-", "_") == column.lower().replace("-", "_"):
            return slot
    raise UsageError(f"there is no slot {column!r} with one value: there are {', '.join(slots)}")


def _test(slot: str, comparison: Comparison) -> str:
    """A constraint on the slot's variable; nothing of another type meets it, nor nil, which is no value."""
    variable, op, value = f"?{slot}", comparison.op, comparison.value
    if isinstance(value, str):
        text = f"(str-compare {variable} {_quoted(value)})"
        return f":(and (lexemep {variable}) (neq {variable} nil) ({op} {text} 0))"
    return f":(and (numberp {variable}) ({op} {variable} {value}))"


def _quoted(text: str) -> str:
    if "\0" in text:
        raise UsageError("a text with a NUL character cannot stand in a rule")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
