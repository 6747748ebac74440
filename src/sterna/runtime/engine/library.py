"""The C calls of CLIPS that clipspy's own interface leaves out, and the hooks that CLIPS calls.

clipspy provides the library. Its Python side is not used: its router slows everything down, and its functions
flatten multifields. All hooks are made when this is imported: in a jail no code can be made.
"""

import ctypes
import weakref
from typing import Any, Protocol

import clips._clips
from clips._clips import ffi, lib

from sterna.errors import JailError
from sterna.runtime.engine.values import Pointer

# Words of `struct fact` in CLIPS 6.4 that we set or read; check_layout() verifies them.
_RECENCY, _TEMPLATE, _NUMBER = 4, 5, 7

_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_FACT_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)
_MODIFY_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER, _POINTER)
_MEMORY_HOOK = ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, ctypes.c_size_t)
_PARSER_HOOK = ctypes.CFUNCTYPE(None, _POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_long, _POINTER)


class Hooked(Protocol):
    """Gets what CLIPS reports of an environment; facts by their addresses."""

    def asserted(self, fact: int) -> None: ...

    def retracted(self, fact: int) -> None: ...

    def modifying(self, fact: int) -> None:
        """The fact is retracted next, and asserted again under its number; 0 when that is over."""

    def parser_error(self, line: int, text: str) -> None: ...

    def called(self, context: Pointer, output: Pointer) -> None:
        """A rule calls one of our functions."""

    def out_of_memory(self) -> None:
        """Must not return: CLIPS cannot continue."""


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
    "AddAssertFunction": (ctypes.c_bool, (_POINTER, _TEXT, _FACT_HOOK, ctypes.c_int, _POINTER)),
    "AddRetractFunction": (ctypes.c_bool, (_POINTER, _TEXT, _FACT_HOOK, ctypes.c_int, _POINTER)),
    "AddModifyFunction": (ctypes.c_bool, (_POINTER, _TEXT, _MODIFY_HOOK, ctypes.c_int, _POINTER)),
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
    "SetOutOfMemoryFunction": (_POINTER, (_POINTER, _MEMORY_HOOK)),
    "SetParserErrorCallback": (_POINTER, (_POINTER, _PARSER_HOOK, _POINTER)),
}
for _name, (_result, _arguments) in _CALLS.items():
    _call = getattr(C, _name)
    _call.restype, _call.argtypes = _result, _arguments

_hooked: weakref.WeakValueDictionary[int, Hooked] = weakref.WeakValueDictionary()


def address_of(pointer: Pointer) -> int:
    """A pointer of cffi as ctypes takes it."""
    return int(ffi.cast("uintptr_t", pointer))


def hook(env: Pointer, hooked: Hooked) -> None:
    """Sends the events of the environment to `hooked` from now on."""
    address = address_of(env)
    _hooked[address] = hooked
    C.AddAssertFunction(address, b"sterna", _ON_ASSERT, 0, None)
    C.AddRetractFunction(address, b"sterna", _ON_RETRACT, 0, None)
    C.AddModifyFunction(address, b"sterna", _ON_MODIFY, 0, None)
    C.SetOutOfMemoryFunction(address, _ON_MEMORY)
    C.SetParserErrorCallback(address, _ON_PARSER_ERROR, None)


def _on_assert(env: int, fact: int, _context: int) -> None:
    try:
        _hooked[env].asserted(fact)
    except MemoryError:  # here and below: no exception may pass through C
        _hooked[env].out_of_memory()


def _on_retract(env: int, fact: int, _context: int) -> None:
    try:
        _hooked[env].retracted(fact)
    except MemoryError:
        _hooked[env].out_of_memory()


def _on_modify(env: int, before: int | None, _after: int | None, _context: int) -> None:
    _hooked[env].modifying(before or 0)


def _on_memory(env: int, _size: int) -> bool:
    _hooked[env].out_of_memory()
    return True


def _on_parser_error(
    env: int, _file: bytes, _warning: bytes | None, error: bytes | None, line: int, _context: int
) -> None:
    if error:
        _hooked[env].parser_error(line, error.decode(errors="replace"))


_ON_ASSERT, _ON_RETRACT = _FACT_HOOK(_on_assert), _FACT_HOOK(_on_retract)
_ON_MODIFY = _MODIFY_HOOK(_on_modify)
_ON_MEMORY = _MEMORY_HOOK(_on_memory)
_ON_PARSER_ERROR = _PARSER_HOOK(_on_parser_error)


# Replaces clipspy's own handler, whose functions are not used here.
@ffi.def_extern(name="python_function")  # type: ignore[untyped-decorator]
def _on_call(env: Pointer, context: Pointer, output: Pointer) -> None:
    hooked = _hooked[address_of(env)]
    try:
        hooked.called(context, output)
    except MemoryError:
        hooked.out_of_memory()


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
