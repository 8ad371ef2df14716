"""Find compiled kernels by their text: in memory, on disk, or by compiling."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from weft.config import Debug, config, debug
from weft.driver import counters, tuned
from weft.driver.background_compile import BackgroundCompile, Once
from weft.driver.context import Context, disk
from weft.errors import CacheError, CompileError
from weft.imports import importing
from weft.ir.stmt import Kernel
from weft.runtimes import trace
from weft.store import fingerprint
from weft.tuning.records import Record

if TYPE_CHECKING:
    from weft.driver.pipeline import Built, Rendered

_KIND: Final = "kernel"
_BYTES_PER_NANOSECOND: Final = 20
_FLOPS_PER_NANOSECOND: Final = 20

# What one thread does in a nanosecond if all that it needs is in its caches, roughly: bytes,
# operations of a product, weighted operations (`strategies.nest.work`) with and without vectors.
_CACHED_PER_NANOSECOND: Final = 40
_PRODUCTS_PER_NANOSECOND: Final = 80
_VECTOR_WORK: Final = 60
_SCALAR_WORK: Final = 6
_CALL_NANOSECONDS: Final = 50

# Above this a kernel has no first tier: one slow run would cost more than compiling it fully.
QUICK_NANOSECONDS: Final = 500_000


class Packing(NamedTuple):
    """Panels that a kernel reads: the key of what fills them, their bytes, which parameter."""

    key: str
    nbytes: int
    source: int


class Code:
    """One compiled kernel.

    Attributes
    ----------
    key, name : str
        Cache key, and the symbol of the entry function.
    image : bytes
        The object file.
    messages : list of (text, check)
        What a failure code (less 1) means, and the number of the check that failed or -1.
    variables : list of str
        Names of the symbolic variables in ABI order.
    address : int
        Where it is loaded; 0 before.
    nest : Kernel or None
        What to compile again, if this is the code of the first tier.
    subject, mark : str
        Key of its tuning record, and what tells whether it was made by that record as it is now.
    width : int
        How many threads it can use at most.
    packings : tuple of Packing
        Copies of parameters that it reads, in order, from parameters behind its own.
    label : str
        What people call it: the kind of its nest, or the user's name.
    line : (str, int) or None
        The user's file and line that it comes from, if this process knows.
    """

    __slots__ = ("__weakref__", "address", "image", "key", "label", "library", "line", "mark",
                 "messages", "name", "nest", "packings", "subject", "variables",
                 "width")  # fmt: skip

    def __init__(self, key: str, image: bytes, messages: list[tuple[str, int]],
                 variables: list[str], subject: str = "", mark: str = "", width: int = 1,
                 packings: tuple[Packing, ...] = (), label: str = "") -> None:  # fmt: skip
        self.label = label
        self.line: tuple[str, int] | None = None
        self.key, self.name, self.image = key, symbol(key), image
        self.messages, self.variables = messages, variables
        self.subject, self.mark, self.width, self.packings = subject, mark, width, packings
        self.address = 0
        self.library: Any = None
        self.nest: Kernel | None = None

    def pack(self) -> bytes:
        """Return the cache entry."""
        head = json.dumps({"messages": self.messages, "variables": self.variables,
                           "subject": self.subject, "mark": self.mark,
                           "width": self.width, "packings": self.packings,
                           "label": self.label}).encode()
        return len(head).to_bytes(4, "little") + head + self.image

    @classmethod
    def unpack(cls, key: str, data: bytes) -> Code | None:
        """Return the kernel of a cache entry, or None if it is not one."""
        try:
            size = int.from_bytes(data[:4], "little")
            head = json.loads(data[4 : 4 + size])
            messages = [(str(text), int(check)) for text, check in head["messages"]]
            return cls(key, data[4 + size :], messages, [str(v) for v in head["variables"]],
                       str(head["subject"]), str(head["mark"]), int(head["width"]),
                       tuple(Packing(str(k), int(n), int(s)) for k, n, s in head["packings"]),
                       str(head.get("label", "")))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


# Kernels that something refers to: a plan, a launch, or the list of those that came last.
_loaded: Final[WeakValueDictionary[str, Code]] = WeakValueDictionary()
_latest: Final[deque[Code]] = deque(maxlen=64)
_MOST_KEYS: Final = 8192  # of kernels that are gone
_read: Final[set[str]] = set()  # keys of what came from disk
_subjects: Final[dict[str, tuple[str, Record | None]]] = {}  # keys, and their tuning records
_distrusted: Final[set[str]] = set()  # and of what the linker refused then
# Called with kernels before they are compiled, where the settings ask for tuning.
tuners: Final[list[Callable[[Kernel, Context], object]]] = []


def symbol(key: str) -> str:
    """Return the entry symbol of the kernel with this key."""
    return f"weft_{key[:24]}"


def key_of(kernel: Kernel, context: Context) -> str:
    """Return the cache key: text, device, target, compiler, threads and Weft's version."""
    with importing:
        from weft.ir.text.text import canonical_text

    text = canonical_text(kernel)
    key = context.key("kernel", text)
    subject = tuned.record_key(text, context)
    record = tuned.find(subject)
    if record is not None:
        key = fingerprint("tuned", key, record.mark)
    _subjects[key] = subject, record
    return key


def by_symbol() -> dict[str, Code]:
    """Return the kernels that something refers to, by their symbols."""
    return {code.name: code for code in list(_loaded.values())}


def nanoseconds(kernel: Kernel | None) -> int:
    """Return about how long a kernel takes, by its arithmetic and the memory it touches."""
    if kernel is None:
        return 0
    meta = kernel.meta
    return max(meta.traffic // _BYTES_PER_NANOSECOND, meta.flops // _FLOPS_PER_NANOSECOND)


def alone(kernel: Kernel) -> int:
    """Return about how many nanoseconds a kernel takes on one thread, its arrays in the caches."""
    with importing:
        from weft.strategies.common.nest import work

    meta = kernel.meta
    if meta.kind in ("contraction", "attention"):
        busy = meta.flops // _PRODUCTS_PER_NANOSECOND
    else:
        vectors = meta.kind in ("elementwise", "rowwise")
        busy = work(kernel.body) // (_VECTOR_WORK if vectors else _SCALAR_WORK)
    return _CALL_NANOSECONDS + max(meta.traffic // _CACHED_PER_NANOSECOND, busy)


def compiled(kernel: Kernel, context: Context, tiers: bool = True,
             resident: tuple[int, ...] = ()) -> Code:  # fmt: skip
    """Return the code of a loop-level kernel, compiling it if no cache has it.

    With `tiers` it may be that of the first tier, if the settings ask for tiers. Copies of the
    `resident` parameters are left to the kernels of `Code.packings`.
    """
    return _finished(_begun(kernel, context, tiers, {}, resident))


def compiled_all(kernels: Iterable[tuple[Kernel, tuple[int, ...]]], context: Context,
                 tick: Callable[[], None]) -> list[Code]:  # fmt: skip
    """Return the code of several kernels with their resident parameters, as `compiled` does.

    LLVM works on one kernel, on a thread of its own, while Weft lowers the next ones.
    """
    with BackgroundCompile(context.threads > 1 and not config().tune) as aside:
        begun: list[Code | _Job] = []
        under_way: dict[str, _Job] = {}
        for kernel, resident in kernels:
            job = _begun(kernel, context, True, under_way, resident)
            begun.append(job)
            if isinstance(job, _Job) and under_way.setdefault(job.key, job) is job:
                aside.start(job.image)
            tick()
        return [_finished(job) for job in begun]


class _Job:
    """A kernel that is on its way through the compiler."""

    def __init__(self, key: str, context: Context, rendered: Rendered, seconds: float,
                 subject: str, mark: str) -> None:  # fmt: skip
        self.key, self.context, self.rendered, self.seconds = key, context, rendered, seconds
        self.subject, self.mark = subject, mark
        self.code: Code | None = None
        self.image = Once(trace.recording("compile", symbol(key), rendered.compiled))


def _finished(job: Code | _Job) -> Code:
    """Return the code of a kernel once the compiler is through with it."""
    if isinstance(job, Code):
        return job
    if job.code is not None:
        return job.code
    rendered = job.rendered
    built = rendered.built(*job.image())
    seconds = job.seconds + built.effort.llvm / 1e3
    counters.compiled(seconds, built)
    quick = rendered.tier == "quick"
    if debug(Debug.COMPILE):
        tier = ", first tier" if quick else ""
        kernel = rendered.nest
        print(f"weft: compiled {kernel.name} ({kernel.meta.kind}{tier}) in {seconds * 1e3:.1f} ms",
              file=sys.stderr)
    code = Code(job.key, built.image, built.messages, built.variables, job.subject, job.mark,
                built.width, _packings(built, job.context), rendered.nest.meta.kind)
    job.code = code
    _note(code)
    if quick:
        code.nest = rendered.nest  # for this process: others shall find the full tier or nothing
    else:
        disk().put(_KIND, job.key, code.pack())
    return code


def _begun(kernel: Kernel, context: Context, tiers: bool, under_way: Mapping[str, _Job],
           resident: tuple[int, ...]) -> Code | _Job:  # fmt: skip
    """Return the code that a cache has, or a kernel lowered for the compiler."""
    if config().tune and context.is_tunable and counters.active() is None:
        for tune in tuners:
            tune(kernel, context)
    key = key_of(kernel, context)
    if resident:
        key, subject = fingerprint("resident", key, *resident), _subjects[key]
        _subjects[key] = subject
    tiered = config().tiered and tiers and context.is_native and not resident
    found = _loaded.get(key)
    if found is not None and counters.active() is None and (tiered or found.nest is None):
        counters.count("kernel memory hits")
        return found
    if under_way and key in under_way and counters.active() is None:
        counters.count("kernel memory hits")
        return under_way[key]
    if counters.active() is None:
        found = from_disk(key)
        if found is not None:
            return found
        if tiered and nanoseconds(kernel) < QUICK_NANOSECONDS:
            return _job(kernel, key, context, "quick")
    return _job(kernel, key, context, resident=resident)


def compile_again(key: str, context: Context) -> tuple[Code, Code]:
    """Compile a kernel of the first tier fully; return its old and its new code, loaded.

    Raises
    ------
    CompileError
        If it does not compile, or its calls would differ from those of the old code.
    """
    old = _loaded.get(key)
    if old is None or old.nest is None:
        raise CompileError("tiers", found="a kernel that nothing uses any more")
    try:
        new = _finished(_job(old.nest, key, context))
        if (new.variables, new.messages) != (old.variables, old.messages):
            raise CompileError("tiers", found="another interface", expected="that of the old code")
        load([new], context)
    except BaseException:
        _loaded[key] = old
        raise
    return old, new


def from_disk(key: str) -> Code | None:
    """Return a kernel that this or another process compiled before."""
    found = _loaded.get(key)
    if found is not None and (found.nest is None or config().tiered):
        return found
    data = disk().get(_KIND, key) if key not in _distrusted else None
    found = Code.unpack(key, data) if data is not None else None
    if found is not None and found.mark != tuned.mark(tuned.find(found.subject)):
        return None  # tuned since, or tuning was forgotten
    if found is not None and any(from_disk(p.key) is None for p in found.packings):
        return None
    if found is not None:
        counters.count("kernel disk hits")
        _note(found)
        _read.add(key)
    return found


def _job(kernel: Kernel, key: str, context: Context, tier: str = "full",
         resident: tuple[int, ...] = (),
         chosen: tuple[Kernel, str] | None = None) -> _Job:  # fmt: skip
    """Lower a kernel for the compiler."""
    with context.preparing():
        from weft.driver.pipeline import render

    start = time.perf_counter()
    subject, record = _subjects.get(key, ("", None))
    with trace.timed("lower", symbol(key)):
        if record is not None and tier == "full":
            chosen = tuned.recorded(kernel, record, context)
        rendered = render(kernel, symbol(key), context, tier, chosen, resident)
    return _Job(key, context, rendered, time.perf_counter() - start, subject, tuned.mark(record))


def _packings(built: Built, context: Context) -> tuple[Packing, ...]:
    """Return what fills the panels of a kernel, compiling it if no cache has it."""
    with importing:
        from weft.ir.text.text import canonical_text
        from weft.strategies.common.nest import size_of

    out: list[Packing] = []
    places = {p.name: i for i, p in enumerate(built.nest.params)}
    for panel in built.panels:
        key = context.key("panels", canonical_text(panel.kernel))
        if from_disk(key) is None:
            _finished(_job(panel.kernel, key, context, chosen=(panel.kernel, built.pipeline)))
        nbytes = size_of(panel.memory.size) * panel.memory.dtype.itemsize
        out.append(Packing(key, nbytes, places[panel.source]))
    return tuple(out)


def load(codes: Iterable[Code], context: Context) -> None:
    """Link every kernel of a native device that is not loaded yet, as one library.

    Raises
    ------
    CompileError
        If the linker refuses an object.
    CacheError
        If it does, and some came from disk: those will be compiled anew when asked for again.
    """
    new = list({c.key: c for c in codes if not c.address}.values())
    if not new:
        return
    try:
        library = context.native.link([c.image for c in new], [c.name for c in new])
    except CompileError as error:
        doubtful = [c.key for c in new if c.key in _read]
        if not doubtful:
            raise
        _distrusted.update(doubtful)
        _read.difference_update(doubtful)
        for key in doubtful:
            _loaded.pop(key, None)
        raise CacheError("load", found=error.message) from error
    for code in new:
        code.address, code.library = library[code.name], library


def _note(code: Code) -> None:
    """Have a kernel found by its key for as long as it is used, and a while longer."""
    _loaded[code.key] = code
    _latest.append(code)
    if len(_subjects) > _MOST_KEYS:
        known = set(_loaded)
        _read.intersection_update(known)
        _distrusted.clear()
        for key in [k for k in list(_subjects) if k not in known]:
            _subjects.pop(key, None)


def forget() -> None:
    """Drop all compiled kernels of this process (for tests and after a cache clear)."""
    _loaded.clear()
    _latest.clear()
    _read.clear()


__all__ = ["Code", "Packing", "compiled", "forget", "from_disk", "key_of", "load", "symbol"]
