"""CLIPS itself: an environment with only the allowed functions, which reports its facts and errors."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from clips._clips import ffi, lib

from sterna.crawler.clp import Construct
from sterna.crawler.facts import Fact, Value, Values
from sterna.crawler.rules import MULTISLOTS, TEMPLATES
from sterna.errors import SternaError
from sterna.model import Record
from sterna.runtime.engine import library
from sterna.runtime.engine.library import ALLOWED, C, address_of, check_layout, function_names
from sterna.runtime.engine.state import OwnFacts
from sterna.runtime.engine.values import Maker, Pointer, argument_of, text_of, value_of

UNBOUNDED = 65_535  # arguments of a function
MAX_ERROR_CHARS = 500

_ROUTERS = (b"stderr", b"stdwrn", b"stdout")
_CODE = re.compile(r"\[[A-Z]+[0-9]+\] *(?:WARNING: )?")
_HALTED = re.compile(r"Execution halted during the actions of defrule '[^']*'\.")
_RULE = re.compile(r"(?:defrule '|[Ii]n rule )([^\s']+)")


class Native(NamedTuple):
    """A function of ours for rules: how many arguments of which kinds it takes, and what it does."""

    name: str
    call: Callable[..., Value | Values | None]
    least: int
    most: int
    kinds: tuple[int, ...]  # bits for each argument, the last for all that follow


class Troubles(Record, frozen=True):
    """An error that CLIPS reports, with its rule if known."""

    rule: str
    text: str
    is_misfit: bool  # a fact is there whose values its template does not allow


class Template(Record, frozen=True):
    """A template: its slots, each with True if it is a multislot; None if its facts are ordered."""

    name: str
    pointer: int
    slots: tuple[tuple[str, bool], ...] | None


class Clips:
    """An environment without files, terminal and forbidden functions."""

    def __init__(self, *, out_of_memory: Callable[[], None]) -> None:
        self.out_of_memory = out_of_memory  # must not return: CLIPS cannot continue
        self._env = lib.CreateEnvironment()
        self._address = address_of(self._env)
        self._make = Maker(self._env)
        self._troubles = lib.CreateStringBuilder(self._env, 512)
        self._form = lib.CreateStringBuilder(self._env, 512)
        self._argument = ffi.new("UDFValue *")
        self._value = ffi.new("CLIPSValue *")
        self._natives: list[Native] = []
        self._kept: list[object] = []  # objects that CLIPS points to and does not copy
        self.parser_errors: list[tuple[int, str]] = []
        self._templates: dict[int, Template] = {}  # by their addresses, and below by their names
        self._names: dict[str, Template] = {}
        self._builders: dict[str, Pointer] = {}
        self._strip()

    def watch(self, own: OwnFacts) -> None:
        self.asserted, self.retracted, self.modifying = own.asserted, own.retracted, own.modifying
        _hooked[self._address] = self
        C.AddAssertFunction(self._address, b"sterna", _ON_ASSERT, 0, None)
        C.AddRetractFunction(self._address, b"sterna", _ON_RETRACT, 0, None)
        C.AddModifyFunction(self._address, b"sterna", _ON_MODIFY, 0, None)
        C.SetOutOfMemoryFunction(self._address, _ON_MEMORY)
        C.SetParserErrorCallback(self._address, _ON_PARSER_ERROR, None)

    def __del__(self) -> None:
        if lib is None:  # Python ends
            return
        for builder in self._builders.values():
            lib.FBDispose(builder)
        lib.MBDispose(self._make.fields)
        for name in _ROUTERS:
            C.CloseStringBuilderDestination(self._address, name)
        lib.SBDispose(self._troubles)
        lib.SBDispose(self._form)
        lib.DestroyEnvironment(self._env)

    def _strip(self) -> None:
        lib.DeleteRouter(self._env, b"fileio")
        for name in _ROUTERS:
            C.OpenStringBuilderDestination(self._address, name, address_of(self._troubles))
        check_layout(self._env)
        for function in function_names(self._env):
            if function not in ALLOWED:
                C.RemoveUDF(self._address, function.encode())
        for template, slots in TEMPLATES.items():  # those of the facts that the crawl gives
            written = " ".join(f"({'multislot' if slot in MULTISLOTS else 'slot'} {slot})" for slot in slots)
            lib.Build(self._env, f"(deftemplate {template} {written})".encode())
        # Of all orders in which rules may fire, the one that facts alone decide: it survives a move.
        lib.SetStrategy(self._env, lib.LEX_STRATEGY)
        C.SetDynamicConstraintChecking(self._address, True)

    # -- rules ---------------------------------------------------------------------------------------------

    def define(self, natives: Iterable[Native]) -> None:
        for native in natives:
            name = native.name.encode()
            place = ffi.cast("void *", len(self._natives))
            self._natives.append(native)
            self._kept.append(name)
            code = lib.python_function
            lib.AddUDF(self._env, name, b"*", native.least, native.most, ffi.NULL, code, name, place)

    def called(self, context: Pointer, output: Pointer) -> None:
        native = self._natives[int(ffi.cast("uintptr_t", context.context))]
        arguments = self._arguments(native, context)
        if arguments is None:
            lib.UDFThrowError(context)
            return
        try:
            self._give(output, native.call(*arguments))
        except (SternaError, ValueError) as error:
            message = f"[STERNA1] {native.name}: {error}\n"
            lib.WriteString(self._env, b"stderr", message.encode(errors="replace"))
            lib.UDFThrowError(context)

    def _arguments(self, native: Native, context: Pointer) -> list[Value | Values] | None:
        arguments: list[Value | Values] = []
        kinds, last = native.kinds, len(native.kinds) - 1
        while lib.UDFHasNextArgument(context):
            if not lib.UDFNextArgument(context, kinds[min(len(arguments), last)], self._argument):
                return None
            arguments.append(argument_of(self._argument))
        return arguments

    def _give(self, output: Pointer, result: Value | Values | None) -> None:
        if result is None:
            output.value = lib.VoidConstant(self._env)
        elif isinstance(result, tuple):
            output.value = self._make.multifield(result)
            output.begin, output.range = 0, len(result)
        else:
            output.value = self._make.single(result)

    def load(self, construct: Construct) -> None:
        """Adds a construct; RulesError with file, line and construct if CLIPS rejects it."""
        text = construct.text.encode()
        self.parser_errors.clear()
        C.LoadFromString(self._address, text, len(text))
        self.troubles()
        if self.parser_errors:
            line, message = self.parser_errors[0]
            raise construct.error(_plain(message), construct.form.line + max(line, 1) - 1)

    # -- running -------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Asserts the first facts of the rules."""
        lib.Reset(self._env)

    def run(self, most: int) -> int:
        """Lets so many rules fire, or all (-1), until one fails or all are halted; returns how many fired."""
        return int(lib.Run(self._env, most))

    def choose(self) -> None:
        """Among matches of one rule with the same facts in different order, puts the newest first.

        CLIPS orders these only by their history, which is not the same after a move.
        """
        first = best = lib.GetNextActivation(self._env, ffi.NULL)
        rule, facts = best_rule, best_facts = self._match(first)
        wanted = sorted(facts)
        following = lib.GetNextActivation(self._env, first)
        while following != ffi.NULL:
            rule, facts = self._match(following)
            if sorted(facts) != wanted:
                break
            if rule == best_rule and facts > best_facts:
                best, best_facts = following, facts
            following = lib.GetNextActivation(self._env, following)
        if best != first:
            C.MoveActivationToTop(self._address, address_of(best))

    def _match(self, activation: Pointer) -> tuple[str, list[str]]:
        """The salience and rule of an activation, and the numbers of its facts."""
        lib.SBReset(self._form)
        lib.ActivationPPForm(activation, self._form)
        rule, _, facts = text_of(self._form.contents).rpartition(": ")
        return rule, [number.rjust(24) for number in facts.split(",")]

    def is_idle(self) -> bool:
        return bool(lib.GetNextActivation(self._env, ffi.NULL) == ffi.NULL)

    def calm(self) -> None:
        """Removes all activations: no rule that waits now fires."""
        lib.DeleteAllActivations(lib.FindDefmodule(self._env, b"MAIN"))

    def halt(self) -> None:
        """Stops the rules at the next step that checks; any thread may call it."""
        C.SetHaltExecution(self._address, True)

    def troubles(self) -> Troubles | None:
        """The errors since the last call; None without any."""
        if not self._troubles.length:
            return None
        text = text_of(self._troubles.contents)
        lib.SBReset(self._troubles)
        rule = _RULE.search(text)
        return Troubles(rule[1] if rule else "", _plain(text), "[CSTRNCHK1]" in text)

    # -- facts ---------------------------------------------------------------------------------------------

    def template_named(self, name: str) -> Template | None:
        if name not in self._names:
            pointer = lib.FindDeftemplate(self._env, name.encode())
            if pointer == ffi.NULL:
                return None
            self._names[name] = self.template(address_of(pointer))
        return self._names[name]

    def template(self, address: int) -> Template:
        if address in self._templates:
            return self._templates[address]
        pointer = ffi.cast("Deftemplate *", address)
        name, slots = text_of(lib.DeftemplateName(pointer)), None
        if not lib.ImpliedDeftemplate(pointer):
            lib.DeftemplateSlotNames(pointer, self._value)
            names = [each.name for each in value_of(self._value)]  # type: ignore[union-attr]
            slots = tuple((each, bool(lib.DeftemplateSlotMultiP(pointer, each.encode()))) for each in names)
        template = self._templates[address] = Template(name, address, slots)
        return template

    def read(self, fact: int, template: Template) -> Fact:
        """The fact at an address; CannotTravel if it holds an address or the like."""
        pointer = ffi.cast("Fact *", fact)
        if template.slots is None:
            lib.GetFactSlot(pointer, ffi.NULL, self._value)
            values = value_of(self._value)
            return Fact(template.name, values if isinstance(values, tuple) else (values,))
        slots = []
        for name, _ in template.slots:
            lib.GetFactSlot(pointer, name.encode(), self._value)
            slots.append((name, value_of(self._value)))
        return Fact(template.name, slots=tuple(slots))

    def assert_slots(self, template: str, slots: Iterable[tuple[str, Value | Values]]) -> None:
        """Asserts an unordered fact; the slots that are not given have their defaults."""
        lib.FBAssert(self._filled(template, slots))

    def check(self, fact: Fact) -> None:
        """ValueError if the template of an unordered fact does not allow its values."""
        if fact.slots is not None:
            lib.FBAbort(self._filled(fact.template, fact.slots))

    def _filled(self, template: str, slots: Iterable[tuple[str, Value | Values]]) -> Pointer:
        builder = self._builders.get(template)
        if builder is None:
            builder = lib.CreateFactBuilder(self._env, template.encode())
            if builder == ffi.NULL:
                raise ValueError(f"the rules have no template {template!r} with slots")
            self._builders[template] = builder
        for name, value in slots:
            error = lib.FBPutSlot(builder, name.encode(), self._make.cell(value))
            if error:
                lib.FBAbort(builder)
                raise ValueError(
                    f"the slot {name!r} of {template!r} {_SLOT_ERRORS.get(error, 'does not fit')}"
                )
        return builder

    def assert_fact(self, fact: Fact) -> None:
        """Asserts a fact; ValueError if its template does not fit."""
        if fact.slots is not None:
            self.assert_slots(fact.template, fact.slots)
            return
        template = self.template_named(fact.template)
        if template and template.slots is not None:
            raise ValueError(f"the template {fact.template!r} has slots: {', '.join(dict(template.slots))}")
        if template:
            pointer = template.pointer
        else:
            symbol = address_of(lib.CreateSymbol(self._env, fact.template.encode()))
            pointer = int(C.CreateImpliedDeftemplate(self._address, symbol, True))
        created = C.CreateFact(pointer)
        C.PutFactSlot(created, None, address_of(self._make.cell(fact.values)))
        C.Assert(created)

    def retract(self, fact: int) -> None:
        lib.Retract(ffi.cast("Fact *", fact))

    # -- globals -------------------------------------------------------------------------------------------

    def has_new_globals(self) -> bool:
        """True once after some global was changed."""
        if not lib.GetGlobalsChanged(self._env):
            return False
        lib.SetGlobalsChanged(self._env, False)
        return True

    def globals(self) -> Iterator[tuple[str, Pointer]]:
        """The names of all globals, each with its value, which `value_of` reads."""
        pointer = lib.GetNextDefglobal(self._env, ffi.NULL)
        while pointer != ffi.NULL:
            lib.DefglobalGetValue(pointer, self._value)
            yield text_of(lib.DefglobalName(pointer)), self._value
            pointer = lib.GetNextDefglobal(self._env, pointer)

    def set_global(self, name: str, value: Value | Values) -> None:
        """Sets a global; ValueError if the rules do not define it."""
        pointer = lib.FindDefglobal(self._env, name.encode())
        if pointer == ffi.NULL:
            raise ValueError(f"the rules have no global ?*{name}*")
        lib.DefglobalSetValue(pointer, self._make.cell(value))


_SLOT_ERRORS = {
    lib.PSE_SLOT_NOT_FOUND_ERROR: "does not exist",
    lib.PSE_INVALID_TARGET_ERROR: "takes one value, or several, unlike what was given",
    lib.PSE_TYPE_ERROR: "is of another type",
    lib.PSE_RANGE_ERROR: "is outside of its range",
    lib.PSE_ALLOWED_VALUES_ERROR: "has a value that is not among the allowed ones",
    lib.PSE_CARDINALITY_ERROR: "has too many or too few values",
}


def _plain(text: str) -> str:
    """An error message of CLIPS in one line, without its codes and without what it shows of the rule."""
    text = _HALTED.sub("", _CODE.sub("", text.partition("\nERROR:")[0]))
    return " ".join(text.split())[:MAX_ERROR_CHARS]


# -- hooks, which CLIPS calls; made when this is imported, for in a jail no code can be made -----------------

_hooked: WeakValueDictionary[int, Clips] = WeakValueDictionary()  # by the addresses of their environments


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
        _hooked[env].parser_errors.append((line, error.decode(errors="replace")))


_ON_ASSERT, _ON_RETRACT = library.FACT_HOOK(_on_assert), library.FACT_HOOK(_on_retract)
_ON_MODIFY, _ON_MEMORY = library.MODIFY_HOOK(_on_modify), library.MEMORY_HOOK(_on_memory)
_ON_PARSER_ERROR = library.PARSER_HOOK(_on_parser_error)


# Replaces clipspy's own handler, whose functions are not used here.
@ffi.def_extern(name="python_function")  # type: ignore[untyped-decorator]
def _on_call(env: Pointer, context: Pointer, output: Pointer) -> None:
    hooked = _hooked[address_of(env)]
    try:
        hooked.called(context, output)
    except MemoryError:
        hooked.out_of_memory()
