"""Tune kernels: search, compile in child processes, time in another, keep what was found."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from weft.config import AutotuneConfig, Debug, config, debug
from weft.driver import tuned
from weft.driver.context import Context
from weft.driver.counters import Recording
from weft.driver.pipeline import without_threads
from weft.driver.tuned import PIPELINES, schedule_digest
from weft.driver.tuning.tune_display import Display, Progress
from weft.errors import ParseError, ScheduleError, TuningError
from weft.ir.stmt import Kernel
from weft.ir.text.text import canonical_text, print_kernel
from weft.locks import in_child
from weft.passes.spmd.loop_fission import has_threads
from weft.schedule.choices import Choice, Choices, Value
from weft.store.digest import blake2b
from weft.strategies import choose
from weft.strategies.common.nest import work
from weft.target import SIMT
from weft.tuning import timing
from weft.tuning.features import features
from weft.tuning.process import Child, Crew
from weft.tuning.records import Record, Records, Trial, records
from weft.tuning.search import BATCH, Candidate, Measurement, Search

_PIPELINE: Final = "compiler"
_COMPILE_SECONDS: Final = 20.0
_LEAST_SECONDS: Final = 5.0  # for a candidate that is timed, however short the default is
_SLOWER: Final = 100.0  # times the default, after which a candidate counts as hanging
_DUEL: Final = 5  # rounds, of two pairs each, that decide between two candidates
_FINAL: Final = 9  # and between the best and the default
_WORKERS: Final = 4
_MOMENT: Final = 0.1  # seconds below which a search is not begun
COMMAND: Final = (sys.executable, "-m", "weft.driver.tuning.tune_worker")

Heard = Callable[["Progress"], object]


class Tuned(NamedTuple):
    """What tuning made of one kernel.

    ``before`` and ``after`` are seconds of one launch by default and tuned, ``trials`` the
    candidates tried in all, ``launches`` how often the program runs the kernel, ``choices`` what
    was decided otherwise, and ``reason`` why the search ended: "candidates", "seeds", "space",
    "time", "known" (nothing to do), or what made it impossible.
    """

    key: str
    kind: str
    before: float
    after: float
    trials: int
    launches: int
    choices: dict[str, Value]
    reason: str

    @property
    def gain(self) -> float:
        """How many times faster the kernel has become."""
        return self.before / self.after if self.after > 0 else 1.0


def record_key(kernel: Kernel, context: Context) -> str:
    """Return the key of a kernel's record: its text, target, compiler and threads."""
    return tuned.record_key(canonical_text(kernel), context)


def tune_kernel(kernel: Kernel, context: Context, seconds: float | None = None, again: bool = False,
                limits: AutotuneConfig | None = None, heard: Callable[[int, float], None] | None
                = None, command: Sequence[str] = COMMAND, launches: int = 1) -> Tuned:  # fmt: skip
    """Search for a better schedule of one kernel, and keep it if there is one.

    Parameters
    ----------
    kernel : Kernel
        An unscheduled kernel.
    context : Context
        A device on which launches can be timed.
    seconds : float, optional
        Time after which nothing new is begun; by default ``WEFT_TUNE_SECONDS``.
    again : bool
        Search on although a search came to its end before.
    limits : AutotuneConfig, optional
        By default those of the settings.
    heard : callable, optional
        Called with the candidates tried and the best ratio after each.
    command : sequence of str
        Starts a child process.
    launches : int
        How often a program runs the kernel.
    """
    store, key = records(), record_key(kernel, context)
    known = store.find(key)
    done = store.finished(key)
    if done is not None and not again:
        before, after = (known.before, known.after) if known is not None else (0.0, 0.0)
        return Tuned(key, kernel.meta.kind, before, after, done, launches, _shown(known), "known")
    allowed = limits or config().autotune
    limit = config().tune_seconds if seconds is None else seconds
    try:
        session = _Session(kernel, key, store, allowed, context, _team(tuple(command), context))
        return session.tune(limit, heard, launches)
    except TuningError as error:  # not even the default runs
        store.finish(key, 0)
        return Tuned(key, kernel.meta.kind, 0.0, 0.0, 0, launches, {},
                     error.found or error.message)
    except BaseException:  # Ctrl-C: what is under way is not wanted
        dismiss()
        raise


def is_searched(kernel: Kernel, context: Context) -> bool:
    """Whether there are decisions for a kernel: threads of its own stay as the user wrote them."""
    return context.is_tunable and not (context.target.style == SIMT and has_threads(kernel))


class _Team(NamedTuple):
    """The children of this process: some compile, one times."""

    command: tuple[str, ...]
    threads: int
    process: int
    crew: Crew
    bench: Child


_hired: _Team | None = None


def _team(command: tuple[str, ...], context: Context) -> _Team:
    """Return the children, which one kernel leaves to the next."""
    global _hired
    threads, process = context.threads, os.getpid()
    if _hired is not None and (_hired.command, _hired.threads, _hired.process) != (
            command, threads, process):
        dismiss()
    if _hired is None:
        env = _environment(threads)
        workers = min(_WORKERS, os.cpu_count() or 1, BATCH)
        _hired = _Team(command, threads, process, Crew(command, env, workers), Child(command, env))
        atexit.register(dismiss)
    return _hired


def dismiss() -> None:
    """End the children of this process."""
    global _hired
    team, _hired = _hired, None
    if team is not None and team.process == os.getpid():  # a parent's are not ours to end
        team.crew.close()
        team.bench.close()


class _Session:
    """The search for one kernel."""

    def __init__(self, kernel: Kernel, key: str, store: Records, limits: AutotuneConfig,
                 context: Context, team: _Team) -> None:  # fmt: skip
        self.kernel, self.key = without_threads(kernel, context), key
        self.store, self.limits = store, limits
        self.text = print_kernel(self.kernel)
        self.device, self.target, self.threads = context.name, context.target, context.threads
        self.pipelines = PIPELINES if context.is_native else PIPELINES[:1]
        self.crew, self.bench = team.crew, team.bench
        self.images: dict[tuple[str, str], bytes] = {}
        self.ratios: dict[bytes, tuple[str, float]] = {}  # of code measured, by its digest
        self.default: tuple[bytes, list[list[Any]]] | None = None
        self.seconds, self.inner, self.opened = 0.0, 1, 0

    def tune(self, seconds: float, heard: Callable[[int, float], None] | None,
             launches: int) -> Tuned:  # fmt: skip
        """Search and keep what was found."""
        end = time.monotonic() + seconds
        default = self.schedule({})
        if default is None:
            raise TuningError("tune", found="a kernel that no strategy takes")
        self._prepare(default)
        known = [(t.choices, t.status, t.ratio, (t.digest, t.pipeline))
                 for t in self.store.trials(self.key)]
        seed = int.from_bytes(blake2b(self.key.encode(), digest_size=8).digest(), "big")
        search = Search(self.schedule, self.measure, self.better, self.limits,
                        end - time.monotonic(), seed, known, heard)
        result = search.run()
        kept = self._keep(result.best, result.trials)
        if result.ended:
            self.store.finish(self.key, result.trials)
        after = kept.after if kept is not None else self.seconds
        before = kept.before if kept is not None else self.seconds
        return Tuned(self.key, self.kernel.meta.kind, before, after, result.trials, launches,
                     _shown(kept), result.reason)

    def _keep(self, best: Candidate, trials: int) -> Record | None:
        """Measure the best against the default once more; keep it if it is faster for sure."""
        before = self.store.find(self.key)
        pairs: timing.Pairs = []
        if best.choices:
            image = self._image(best)
            if image is not None:
                with contextlib.suppress(TuningError):
                    pairs = self._pairs("measure", [image], _FINAL) or []
        if not pairs or not timing.significant(pairs):
            if before is None or (pairs and timing.ratio(pairs) < 1.0):
                return before  # what was shown once is not undone by a noisy moment
            self.store.drop(self.key)
            return None
        old = sorted(p[0] for p in pairs)[len(pairs) // 2]
        choices = self._needed(best)
        record = Record(self.key, self.kernel.meta.kind, choices, best.pipeline, best.digest,
                        best.trace, old, old * timing.ratio(pairs), trials)
        self.store.put(record)
        return record

    def _needed(self, best: Candidate) -> dict[str, Value]:
        """Return the choices that make a candidate, without those that changed nothing."""
        choices = {n: v for n, v in best.choices.items() if n != _PIPELINE}
        for name in list(choices):
            fewer = self.schedule({n: v for n, v in choices.items() if n != name})
            if fewer is not None and fewer.digest == best.digest:
                del choices[name]
        return choices

    # ---- what the search asks for ----------------------------------------------------------------

    def schedule(self, given: Mapping[str, Value]) -> Candidate | None:
        """Return the candidate of some choices."""
        pipeline = str(given.get(_PIPELINE, PIPELINES[0]))
        if pipeline not in self.pipelines:
            pipeline = PIPELINES[0]
        choices = Choices({n: v for n, v in given.items() if n != _PIPELINE})
        try:
            made = choose(self.kernel, self.target, self.threads, choices)
        except (ScheduleError, ParseError):
            return None
        space = tuple(choices.made.values())
        if len(self.pipelines) > 1:
            space += (Choice(_PIPELINE, PIPELINES[0], self.pipelines, pipeline),)
        changed: dict[str, Value] = choices.changed()
        if pipeline != PIPELINES[0]:
            changed[_PIPELINE] = pipeline
        return Candidate(changed, space, schedule_digest(made), pipeline,
                         made.meta.schedule, features(made, self.target, self.threads))

    def measure(self, batch: Sequence[Candidate]) -> Iterator[Measurement]:
        """Compile a batch, then check and time one after the other, each noted as it comes."""
        failed: dict[int, Measurement] = {}
        for number, reply in self.crew.work(map(self._request, batch), _COMPILE_SECONDS):
            candidate = batch[number]
            if isinstance(reply, TuningError):
                failed[number] = self._note(candidate, reply.found or "lost", math.inf)
            elif "error" in reply[0]:
                failed[number] = self._note(candidate, f"refused: {reply[0]['error']}", math.inf)
            else:
                self.images[candidate.identity] = reply[1][0]
        for number, candidate in enumerate(batch):  # in order, whichever was compiled first
            yield failed[number] if number in failed else self._timed(candidate)

    def better(self, new: Candidate, old: Candidate) -> float | None:
        """Return the time of one candidate over another's, if the first is faster for sure."""
        images = [self._image(c) for c in (old, new)]
        if images[0] is None or images[1] is None or images[0] == images[1]:
            return None
        try:
            pairs = self._pairs("duel", [i for i in images if i is not None], _DUEL)
        except TuningError:  # whichever it was, the old one has proven itself
            return None
        return timing.ratio(pairs) if pairs and timing.significant(pairs) else None

    # ---- children --------------------------------------------------------------------------------

    def _request(self, candidate: Candidate) -> dict[str, Any]:
        return {"op": "build", "kernel": self.text, "trace": list(candidate.trace),
                "pipeline": candidate.pipeline, "device": self.device}

    def _image(self, candidate: Candidate) -> bytes | None:
        """Return the code of a candidate, compiled anew if an earlier search did it."""
        if candidate.identity not in self.images:
            for _, reply in self.crew.work([self._request(candidate)], _COMPILE_SECONDS):
                if not isinstance(reply, TuningError) and "error" not in reply[0]:
                    self.images[candidate.identity] = reply[1][0]
        return self.images.get(candidate.identity)

    def _prepare(self, default: Candidate) -> None:
        """Compile the default and run it once."""
        ((_, reply),) = self.crew.work([self._request(default)], 3 * _COMPILE_SECONDS)
        if isinstance(reply, TuningError):
            raise reply
        if "error" in reply[0]:
            raise TuningError("tune", found=f"a default that is refused: {reply[0]['error']}")
        image = self.images[default.identity] = reply[1][0]
        self.default = image, reply[0]["variables"]
        self.ratios[_code(image)] = "ok", 1.0
        with self.store.turn():
            self._open()

    def _open(self) -> None:
        """Give the timing child the kernel, if it is a new one."""
        if self.bench.running and self.opened == self.bench.starts:
            return
        assert self.default is not None
        image, variables = self.default
        head, _ = self.bench.ask({"op": "open", "kernel": self.text, "variables": variables,
                                  "device": self.device}, [image], 3 * _COMPILE_SECONDS)
        if "error" in head:
            raise TuningError("tune", found=f"a default that does not run: {head['error']}")
        self.opened = self.bench.starts
        self.seconds, self.inner = float(head["seconds"]), int(head["inner"])

    def _pairs(self, what: str, images: list[bytes], rounds: int) -> list[list[float]] | None:
        """Time code in the child; None if it was lost or computes something else."""
        with self.store.turn():
            self._open()
            limit = _LEAST_SECONDS + _SLOWER * self.seconds * (self.inner + 2) + (
                20 * rounds * self.inner * self.seconds)
            head, _ = self.bench.ask({"op": what, "rounds": rounds}, images, limit)
        if "error" in head:
            raise TuningError("measure", found=f"failed: {head['error']}")
        return None if head.get("same") is False else head["pairs"]

    def _timed(self, candidate: Candidate) -> Measurement:
        image = self.images[candidate.identity]
        found = self.ratios.get(_code(image))
        if found is None:
            try:
                pairs = self._pairs("measure", [image], self.limits.n_launches)
                found = ("wrong", math.inf) if pairs is None else ("ok", timing.ratio(pairs))
            except TuningError as error:
                found = error.found or "lost", math.inf
            self.ratios[_code(image)] = found
        return self._note(candidate, *found)

    def _note(self, candidate: Candidate, status: str, ratio: float) -> Measurement:
        """Write a trial down before anything else happens."""
        self.store.tried(self.key, Trial(candidate.digest, candidate.pipeline, candidate.choices,
                                         status, ratio))
        if debug(Debug.AUTOTUNE):
            print(f"weft: tuning {self.kernel.name}: {ratio:.3f} {status} {candidate.choices}",
                  file=sys.stderr)
        return Measurement(candidate, status, ratio)


def _shown(record: Record | None) -> dict[str, Value]:
    """Return what a record decides otherwise than by default."""
    if record is None:
        return {}
    pipeline = {} if record.pipeline == PIPELINES[0] else {_PIPELINE: record.pipeline}
    return {**record.choices, **pipeline}


def _code(image: bytes) -> bytes:
    return blake2b(image, digest_size=16).digest()


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of children: they find this Weft, and neither tune nor talk."""
    package = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "WEFT_NUM_THREADS": str(threads), "WEFT_DEBUG": "0",
            "WEFT_TUNE": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# ---- whole programs ------------------------------------------------------------------------------


def tune_program(recording: Recording, seconds: float | None = None, again: bool = False,
                 heard: Heard | None = None) -> Iterator[Tuned]:  # fmt: skip
    """Tune the kernels of a recording, those that take most of its time first; yield each.

    Parameters
    ----------
    recording : Recording
        What was compiled while the program ran.
    seconds : float, optional
        For all kernels together, divided by what they cost: a kernel that takes a third of the
        program's time gets a third, and what one leaves goes to the next ones. Those that would
        get less than a moment are left. Without it, each has its own ``WEFT_TUNE_SECONDS``.
    again : bool
        Search on although a search came to its end before.
    heard : callable, optional
        Called with a `Progress` after each candidate.

    Raises
    ------
    TuningError
        If all that was compiled is for devices whose launches cannot be timed.
    """
    if recording.built and not any(b.context.is_tunable for b in recording.built):
        names = sorted({b.context.name for b in recording.built})
        raise TuningError("tune", found="kernels of " + ", ".join(names) + " alone",
                          expected="a device whose launches can be timed")
    nests = {record_key(b.nest, b.context): (b.nest, b.context) for b in recording.built
             if is_searched(b.nest, b.context)}
    launches = dict.fromkeys(nests, 0)
    for plan in recording.plans:
        for step in plan.steps or ():
            key = record_key(step.kernel, plan.context)
            if key in launches:
                launches[key] += 1
    share = {k: max(launches[k], 1) * _cost(n) for k, (n, _) in nests.items()}
    order = sorted(nests, key=lambda k: -share[k])
    end = math.inf if seconds is None else time.monotonic() + seconds
    for number, key in enumerate(order):
        limit = float(config().tune_seconds)
        if seconds is not None:
            left = max(end - time.monotonic(), 0.0)
            limit = left * share[key] / sum(share[k] for k in order[number:])
        if limit < _MOMENT < (seconds or 0):  # what it could gain is less than what it takes
            kind = nests[key][0].meta.kind
            yield Tuned(key, kind, 0.0, 0.0, 0, max(launches[key], 1), {}, "time")
            continue
        until = time.monotonic() + limit

        def tell(trials: int, ratio: float, number: int = number, until: float = until,
                 kind: str = nests[key][0].meta.kind) -> None:  # fmt: skip
            if heard is not None:
                heard(Progress(number, len(order), kind, trials, ratio,
                               max(until - time.monotonic(), 0.0)))

        tell(0, 1.0)
        yield tune_kernel(*nests[key], limit, again, heard=tell, launches=max(launches[key], 1))
    dismiss()


def _cost(kernel: Kernel) -> float:
    """Return about how many nanoseconds a launch of a kernel takes."""
    meta = kernel.meta
    return max(meta.traffic / 20, meta.flops / 20, work(kernel.body) / 60, 50.0)


_busy = False


def _forget_tuning() -> None:
    global _busy
    _busy = False  # a thread that was tuning is not in this child


in_child(_forget_tuning)


def tune_first(kernel: Kernel, context: Context) -> None:
    """Tune a kernel that is compiled for the first time, where the settings ask for that.

    It gets its time once: no later process searches on, unless ``weft tune --again`` asks for it
    or this one is killed in the middle.
    """
    global _busy
    if _busy or not is_searched(kernel, context):
        return
    _busy = True
    try:
        with Display() as display:
            found = tune_kernel(kernel, context, heard=lambda trials, ratio: display.heard(
                Progress(0, 1, kernel.meta.kind, trials, ratio, 0.0)))
        if found.reason == "time":
            records().finish(found.key, found.trials)
    finally:
        _busy = False


__all__ = ["COMMAND", "Progress", "Tuned", "dismiss", "is_searched", "record_key", "tune_first",
           "tune_kernel", "tune_program"]
