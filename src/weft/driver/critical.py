"""Compile, verify and load critical functions, with their native entry points."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from weft.compilers.machine_code import Reach, reach
from weft.driver import pipeline
from weft.driver.context import disk, host_context
from weft.driver.launch import Failed
from weft.driver.optimisation_levels import LEVELS, style_of
from weft.imports import importing
from weft.ir.linear import LinearKernel
from weft.ir.record import Record
from weft.ir.stmt import CHECK, Kernel, Location
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.ir.verify.verify_linear import verify_linear
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.extremes import splitter
from weft.passes.vector.vectorize import vectorize
from weft.runtimes.native.calls import critical_call, critical_clock
from weft.runtimes.native.calls import critical_ir as ir
from weft.runtimes.native.calls.dispatch import NotSupported, object_layout
from weft.runtimes.native.executor.native import address_of
from weft.store import fingerprint

__all__ = ["ALLOWED", "Code", "Contract", "Failed", "Loaded", "build", "clock", "missing",
           "violations"]  # fmt: skip

_FLOATS: Final = ("ceil", "floor", "fma", "fmod", "rint", "round", "roundeven", "sqrt", "trunc")
# What machine code may call: functions that compute, and neither allocate nor enter the system.
ALLOWED: Final = frozenset(
    {"bcmp", "memcmp", "memcpy", "memmove", "memset", "__extendhfsf2", "__truncsfhf2",
     "__truncdfhf2", "__truncsfbf2", "__truncdfbf2", *_FLOATS, *(f"{f}f" for f in _FLOATS)}
)  # fmt: skip
_ALLOCATORS: Final = frozenset({"aligned_alloc", "calloc", "free", "malloc", "posix_memalign",
                                "realloc"})
_KIND: Final = "critical"


class Contract(NamedTuple):
    """What a critical function promises, and how it is compiled."""

    no_allocation: bool = True
    no_syscalls: bool = True
    inline_always: bool = True
    null_checks: bool = True
    level: str = "Olatency"


class Code(Record):
    """A compiled critical function.

    Attributes
    ----------
    name : str
        Its symbol.
    core, caller : bytes
        The object of the function, which is what the proof reads, and of what calls it.
    words : list of Word
        Its parameters in C.
    messages : list of (str, int)
        What a code (less 1) means, and the number of the statement that it comes from or -1.
    places : list of (Location or None)
        Where the statements stand.
    """

    name: str
    core: bytes
    caller: bytes
    words: tuple[ir.Word, ...]
    params: Mapping[str, ir.Param]
    result: ir.Param
    results: tuple[Any, ...]
    messages: list[tuple[str, int]]
    places: list[Location | None]

    def failure(self, code: int, value: int, bound: int) -> Failed:
        """Return what a code means."""
        if code == ir.NULL:
            return Failed("an address that is 0", None, 0, 0)
        if not 0 < code <= len(self.messages):
            return Failed(f"failure {code}", None, value, bound)
        message, number = self.messages[code - 1]
        place = self.places[number] if 0 <= number < len(self.places) else None
        return Failed(message, place, value, bound)

    def reach(self) -> Reach:
        """Return what the machine code calls."""
        return reach(self.core)


def build(kernel: Kernel, name: str, params: Mapping[str, ir.Param], result: ir.Param,
          contract: Contract) -> Code:  # fmt: skip
    """Return a critical function compiled for the host, from the disk cache if it is there.

    Parameters
    ----------
    kernel
        It at loop level, results as its last memories.
    name
        Its symbol.
    params, result
        Its parameters and what it returns.
    contract
        How to compile it.

    Raises
    ------
    UnsupportedError
        For what the host cannot do.
    """
    with importing:
        from weft.ir.text.text import canonical_text

    places: list[Location | None] = []
    numbers: dict[Any, Location] = {}
    for number, stmt in enumerate(walk(kernel.body)):
        places.append(kernel.locations.get(stmt))
        numbers[stmt] = Location(CHECK, number)
    words = tuple(ir.words_of(params))
    narrays = sum(w.memory >= 0 for w in words)
    results = tuple(m.dtype for m in kernel.params[narrays:])
    layout = _layout() if ir.is_native(params) else None
    caller = critical_call.call_module(name, params, words, result, len(results), layout).text
    context = host_context()
    key = context.key(_KIND, canonical_text(kernel), name, repr(words), caller, repr(contract))
    held = disk().get(_KIND, key)
    found = None if held is None else _unpack(held)
    if found is None:
        linear = _lower(kernel.replace(locations=numbers))
        style = style_of(contract.level)
        style = style.replace(attributes=(*style.attributes, '"no-jump-tables"="true"'),
                              inlined=True, inlined_failure=contract.inline_always)
        body = context.renderer().render(linear, ir.BODY, style).text
        text = ir.core_module(body, name, words, len(results),
                              [v.attr.name for v in linear.variables],
                              nulls=contract.null_checks)
        core = context.compiler.compile(text, LEVELS[contract.level])
        messages = [(m, p.line if p is not None and p.file == CHECK else -1)
                    for m, p in linear.messages]
        found = core, context.compiler.compile(caller, "O2"), messages
        disk().put(_KIND, key, _pack(*found))
    return Code(name, found[0], found[1], words, params, result, results, found[2], places)


def _lower(kernel: Kernel) -> LinearKernel:
    target = host_context().target
    flat = vectorize(legalize(kernel, target, splitter(target)))
    linear = linearize(flat)
    if pipeline.verifying:
        verify(kernel)
        verify(flat)
        verify_linear(linear)
    return linear


def _pack(core: bytes, caller: bytes, messages: list[tuple[str, int]]) -> bytes:
    head = json.dumps({"core": len(core), "messages": messages}).encode()
    return len(head).to_bytes(4, "little") + head + core + caller


def _unpack(data: bytes) -> tuple[bytes, bytes, list[tuple[str, int]]] | None:
    try:
        size = int.from_bytes(data[:4], "little")
        head = json.loads(data[4 : 4 + size])
        end = 4 + size + int(head["core"])
        messages = [(str(m), int(n)) for m, n in head["messages"]]
        return data[4 + size : end], data[end:], messages
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


_layouts: Final[list[dict[str, int] | None]] = []


def _layout() -> dict[str, int] | None:
    """Return where members lie in objects, None where native code cannot rely on any."""
    if not _layouts:
        try:
            _layouts.append(object_layout())
        except NotSupported:
            _layouts.append(None)
    return _layouts[0]


# --- the proof

def violations(code: Code, contract: Contract) -> list[tuple[str, tuple[str, ...]]]:
    """Return what the machine code does against a contract, and the calls that lead there.

    Raises
    ------
    UnsupportedError
        If the machine code cannot be read.
    """
    if not (contract.no_allocation or contract.no_syscalls or contract.inline_always):
        return []
    found = code.reach()
    chains = found.chains(code.name)
    wrong: list[tuple[str, tuple[str, ...]]] = []
    for name, chain in chains.items():
        if name in found.system and contract.no_syscalls:
            wrong.append((f"{name} enters the operating system", chain))
        if name in ALLOWED or _NUMBER in chain:  # what it calls is told as printing is
            continue
        if name in found.calls:
            if contract.inline_always and name != code.name:
                wrong.append((f"{name} is not inlined (inline_always)", chain))
        elif name in _ALLOCATORS:
            if contract.no_allocation:
                wrong.append((f"{name} allocates memory (no_allocation)", chain))
        elif contract.no_syscalls or contract.no_allocation:
            rule = "no_syscalls" if contract.no_syscalls else "no_allocation"
            what = f"a call of {name}" if name else "a call of a computed address"
            wrong.append((f"{what}, which may allocate and enter the operating system ({rule})",
                          chain))
    return wrong


# --- what runs

_NUMBER: Final = "weft.number"  # makes text of a float in front of printf
_Frame: Final = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Loaded:
    """A critical function in memory.

    Attributes
    ----------
    address : int
        Of the function itself, as C calls it.
    frame : int
        Address of the function that takes its arguments from words.
    call : int
        Address of its vectorcall function, 0 if Python has to take the arguments apart.
    """

    __slots__ = ("_invoke", "_library", "_next", "address", "call", "code", "frame")

    def __init__(self, code: Code, failed: Callable[[int, int, int], object]) -> None:
        import numpy as np

        layout = _layout() if ir.is_native(code.params) else None
        caller = critical_call.call_module(code.name, code.params, code.words, code.result,
                                           len(code.results), layout)
        objects: dict[str, Any] = {
            "weft_array_type": np.ndarray, "weft_float": float, "weft_int": int, "weft_none": None,
            "weft_np_float64": np.float64, "weft_true": True, "weft_false": False,
            "weft_tuple": tuple, "weft_failed": failed,
        }  # fmt: skip
        objects |= {f"weft_kind_{k}": kind for k, kind in enumerate(caller.kinds)}
        objects |= {f"weft_name_{k}": sys.intern(name) for k, name in enumerate(caller.names)}
        imports = {}
        for name in (*caller.others, *objects):
            if name.startswith("weft_dtype_"):
                objects[name] = _numpy(name.removeprefix("weft_dtype_"))
            imports[name] = id(objects[name])
        imports |= {name: address_of(name) for name in caller.functions}
        symbols = [code.name, "weft_frame"]
        symbols += ["weft_call", "weft_next"] if layout is not None else []
        self.code = code
        self._library = host_context().native.loader.load(
            [code.core, code.caller], symbols, imports, keep=(objects,))
        self.address = self._library[code.name]
        self.frame = self._library["weft_frame"]
        self.call = self._library["weft_call"] if layout is not None else 0
        self._next = self._library["weft_next"] if layout is not None else 0
        self._invoke = _Frame(self.frame)

    def follow(self, address: int) -> None:
        """Let calls with other arguments go to another vectorcall function."""
        if self._next:
            ctypes.c_void_p.from_address(self._next).value = address

    def run(self, words: Any, results: Any) -> Failed | None:
        """Run the function on words (arrays of 8-byte elements); return what stopped it."""
        failure = (ctypes.c_int64 * 4)()
        status = self._invoke(words.buffer_info()[0], results.buffer_info()[0],
                              ctypes.addressof(failure))
        if not status:
            return None
        return self.code.failure(status, failure[2], failure[3])


def _numpy(text: str) -> Any:
    from weft.ir.dtype import from_text

    return from_text(text).numpy


class _Shared:
    """Code that all critical functions share."""

    def __init__(self) -> None:
        self.libraries: dict[str, Any] = {}

    def load(self, text: str, symbols: tuple[str, ...], imports: dict[str, int]) -> Any:
        found = self.libraries.get(text)
        if found is None:
            compiler = host_context().compiler
            key = fingerprint("runtime", text, compiler.cache_key)
            image = disk().get("runtime", key)
            if image is None:
                image = compiler.compile(text, "O2")
                disk().put("runtime", key, image)
            loader = host_context().native.loader
            found = self.libraries[text] = loader.load(image, symbols, imports)
            found.pin()
        return found


_shared: Final = _Shared()


def missing() -> int:
    """Return the address of the vectorcall function that calls the method ``_miss``."""
    code = critical_call.missing()
    imports = {name: address_of(name) for name in code.named("Py")}
    imports["weft_name_miss"] = id(sys.intern("_miss"))
    found: int = _shared.load(code.text, ("weft_missing",), imports)["weft_missing"]
    return found


def clock() -> Mapping[str, int]:
    """Return the addresses of `weft.runtimes.native.calls.critical_clock.SYMBOLS`."""
    code = critical_clock.module()
    imports = {name: address_of(name) for name in code.named("Py")}
    library = _shared.load(code.text, critical_clock.SYMBOLS, imports)
    return {name: library[name] for name in critical_clock.SYMBOLS}
