"""The C calls of CLIPS that clipspy's own interface leaves out, and the functions that rules may call.

clipspy provides the library. Its Python side is not used: its router slows everything down, and its functions
flatten multifields.
"""

import ctypes
from typing import Any

import clips._clips
from clips._clips import ffi, lib

from sterna.errors import JailError
from sterna.runtime.engine.values import Pointer

# Words of `struct fact` in CLIPS 6.4 that we set or read; check_layout() verifies them.
_RECENCY, _TEMPLATE, _NUMBER = 4, 5, 7

_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
FACT_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)
MODIFY_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER, _POINTER)
MEMORY_HOOK = ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, ctypes.c_size_t)
PARSER_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_long, _POINTER)


class _Lexeme(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_ushort),
        ("next", _POINTER),
        ("count", ctypes.c_long),
        ("bits", ctypes.c_uint),
        ("contents", _TEXT),
    )


class _Function(ctypes.Structure):
    """`struct functionDefinition` up to its link."""


_Function._fields_ = (
    ("name", ctypes.POINTER(_Lexeme)),
    ("own_name", _TEXT),
    ("returns", ctypes.c_uint),
    ("call", _POINTER),
    ("parser", _POINTER),
    ("restrictions", _POINTER),
    ("least", ctypes.c_ushort),
    ("most", ctypes.c_ushort),
    ("flags", ctypes.c_ubyte),
    ("saved_index", ctypes.c_ulong),
    ("next", ctypes.POINTER(_Function)),
)


C: Any = ctypes.CDLL(clips._clips.__file__)
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "AddAssertFunction": (ctypes.c_bool, (_POINTER, _TEXT, FACT_HOOK, ctypes.c_int, _POINTER)),
    "AddRetractFunction": (ctypes.c_bool, (_POINTER, _TEXT, FACT_HOOK, ctypes.c_int, _POINTER)),
    "AddModifyFunction": (ctypes.c_bool, (_POINTER, _TEXT, MODIFY_HOOK, ctypes.c_int, _POINTER)),
    "Assert": (_POINTER, (_POINTER,)),
    "CloseStringBuilderDestination": (ctypes.c_bool, (_POINTER, _TEXT)),
    "CreateFact": (_POINTER, (_POINTER,)),
    "CreateImpliedDeftemplate": (_POINTER, (_POINTER, _POINTER, ctypes.c_bool)),
    "GetFunctionList": (ctypes.POINTER(_Function), (_POINTER,)),
    "LoadFromString": (ctypes.c_int, (_POINTER, _TEXT, ctypes.c_size_t)),
    "MoveActivationToTop": (ctypes.c_bool, (_POINTER, _POINTER)),
    "OpenStringBuilderDestination": (ctypes.c_bool, (_POINTER, _TEXT, _POINTER)),
    "PutFactSlot": (ctypes.c_bool, (_POINTER, _TEXT, _POINTER)),
    "RemoveUDF": (ctypes.c_bool, (_POINTER, _TEXT)),
    "SetDynamicConstraintChecking": (ctypes.c_bool, (_POINTER, ctypes.c_bool)),
    "SetHaltExecution": (None, (_POINTER, ctypes.c_bool)),
    "SetOutOfMemoryFunction": (_POINTER, (_POINTER, MEMORY_HOOK)),
    "SetParserErrorCallback": (_POINTER, (_POINTER, PARSER_HOOK, _POINTER)),
}
for _name, (_result, _arguments) in _CALLS.items():
    _call = getattr(C, _name)
    _call.restype, _call.argtypes = _result, _arguments


def address_of(pointer: Pointer) -> int:
    """A pointer of cffi as ctypes takes it."""
    return int(ffi.cast("uintptr_t", pointer))


def function_names(env: Pointer) -> list[str]:
    """The names of all functions of an environment, hidden ones too."""
    names = []
    entry = C.GetFunctionList(address_of(env))
    while entry:
        names.append(entry.contents.name.contents.contents.decode())
        entry = entry.contents.next
    return names


def _words_of(fact: int) -> Pointer:
    return ffi.cast("unsigned long long *", fact)


def template_of(fact: int) -> int:
    return int(_words_of(fact)[_TEMPLATE])


def number_of(fact: int) -> int:
    return int(_words_of(fact)[_NUMBER])


def set_number(fact: int, number: int, recency: int) -> None:
    """Gives a fact its number, and its place among others where the newest come first."""
    words = _words_of(fact)
    words[_NUMBER], words[_RECENCY] = number, recency


def check_layout(env: Pointer) -> None:
    """JailError unless facts have the expected layout; the environment must still have its own functions."""
    fact = lib.AssertString(env, b"(sterna)")
    template = lib.FactDeftemplate(fact)
    set_number(address_of(fact), 77, 99)
    value = ffi.new("CLIPSValue *")
    lib.Eval(env, b"(timetag 77)", value)
    is_known = template_of(address_of(fact)) == address_of(template) and lib.FactIndex(fact) == 77
    if not is_known or value.header.type != 1 or value.integerValue.contents != 99:
        raise JailError("unknown version of CLIPS; install clipspy 1.0.6")
    lib.Retract(fact)
    lib.Undeftemplate(template, env)


# -- the functions that rules may call --------------------------------------------------------------------
# All others are removed before any rule is read. Not here, and why: functions that reach files, the system or
# the terminal; those that make rules or functions from texts (eval, build, assert-string) or remove them; the
# switches of the whole engine (strategy, reset, run, halt, watch); time and chance, so that a crawler does
# the same wherever it continues; objects; `format`, which writes past its buffer; `funcall`, which hides from
# a reader what is called; `try`, which hides errors.

# CLIPS itself puts these into rules that use the above; no rule can name them.
HIDDEN = frozenset(
    {
        "(expansion-call)", "(get-loop-count)", "(get-progn$-field)", "(get-progn$-index)", "(query-fact)",
        "(query-fact-slot)", "(set-evaluation-error)",
    }
)  # fmt: skip
ALLOWED = HIDDEN | frozenset(
    {
        # Logic.
        "and", "or", "not", "eq", "neq", "if", "switch",
        # Numbers.
        "=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "**", "div", "mod", "abs", "min", "max",
        "round", "integer", "float", "sqrt", "exp", "log", "log10", "pi", "sin", "cos", "tan", "atan",
        "atan2",
        # Kinds of values.
        "numberp", "integerp", "floatp", "stringp", "symbolp", "lexemep", "multifieldp", "evenp", "oddp",
        "fact-addressp",
        # Texts.
        "str-cat", "sym-cat", "str-length", "str-index", "str-compare", "str-replace", "sub-string",
        "upcase", "lowcase", "string-to-field",
        # Multifields.
        "create$", "nth$", "first$", "rest$", "length$", "member$", "subsetp", "subseq$", "insert$",
        "delete$", "delete-member$", "replace$", "replace-member$", "union$", "intersection$", "difference$",
        "explode$", "implode$", "expand$", "sort",
        # Steps.
        "bind", "progn", "progn$", "foreach", "loop-for-count", "while", "return", "break", "void",
        # Facts.
        "assert", "retract", "modify", "duplicate", "fact-existp", "fact-index", "fact-relation",
        "fact-slot-names", "fact-slot-value", "any-factp", "find-fact", "find-all-facts", "do-for-fact",
        "do-for-all-facts", "delayed-do-for-all-facts",
    }
)  # fmt: skip
