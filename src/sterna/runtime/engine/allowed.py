"""Which of CLIPS's functions rules may call. Every other one is taken out before anything is read.

Not here, and why: whatever reaches files, the system or the terminal; whatever makes rules or functions from
texts (eval, build, assert-string) or takes them away; the switches of the whole engine (strategy, reset, run,
halt, watch); time and chance, so that a crawler does the same wherever it goes on; objects; `format`, which
writes past its buffer; `funcall`, which hides from a reader what is called; `try`, which hides errors.
"""

LOGIC = frozenset({"and", "or", "not", "eq", "neq", "if", "switch"})
NUMBERS = frozenset(
    {
        "=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "**", "div", "mod", "abs", "min", "max",
        "round", "integer", "float", "sqrt", "exp", "log", "log10", "pi", "sin", "cos", "tan",
        "atan", "atan2",
    }
)  # fmt: skip
KINDS = frozenset(
    {
        "numberp", "integerp", "floatp", "stringp", "symbolp", "lexemep", "multifieldp", "evenp", "oddp",
        "fact-addressp",
    }
)  # fmt: skip
TEXTS = frozenset(
    {
        "str-cat", "sym-cat", "str-length", "str-index", "str-compare", "str-replace", "sub-string", "upcase",
        "lowcase", "string-to-field",
    }
)  # fmt: skip
MULTIFIELDS = frozenset(
    {
        "create$", "nth$", "first$", "rest$", "length$", "member$", "subsetp", "subseq$", "insert$",
        "delete$", "delete-member$", "replace$", "replace-member$", "union$", "intersection$", "difference$",
        "explode$", "implode$", "expand$", "sort",
    }
)  # fmt: skip
STEPS = frozenset(
    {"bind", "progn", "progn$", "foreach", "loop-for-count", "while", "return", "break", "void"}
)
FACTS = frozenset(
    {
        "assert", "retract", "modify", "duplicate", "fact-existp", "fact-index", "fact-relation",
        "fact-slot-names", "fact-slot-value", "any-factp", "find-fact", "find-all-facts", "do-for-fact",
        "do-for-all-facts", "delayed-do-for-all-facts",
    }
)  # fmt: skip
# What CLIPS itself puts into rules where they use the above; no rule can name them.
HIDDEN = frozenset(
    {
        "(expansion-call)", "(get-loop-count)", "(get-progn$-field)", "(get-progn$-index)", "(query-fact)",
        "(query-fact-slot)", "(set-evaluation-error)",
    }
)  # fmt: skip

ALLOWED = LOGIC | NUMBERS | KINDS | TEXTS | MULTIFIELDS | STEPS | FACTS | HIDDEN
