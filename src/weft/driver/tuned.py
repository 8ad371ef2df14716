"""Apply tuning records when a kernel is compiled: its key, record and schedule."""

from __future__ import annotations

import sys
from typing import Final

from weft.config import Debug, debug
from weft.driver.context import Context
from weft.imports import importing
from weft.ir.stmt import Kernel
from weft.tuning.records import Record, digest_of, key_of, records

PIPELINES: Final = ("short", "O1", "O2", "O3")  # of the compiler; the first is the default


def record_key(text: str, context: Context) -> str:
    """Return the key of a kernel's record: its canonical text, target, compiler and threads."""
    return key_of(text, context.fingerprint(), context.compiler.cache_key, context.threads)


def find(key: str) -> Record | None:
    """Return the record of a key; without a database this costs one look at the folder."""
    return records().find(key)


def mark(record: Record | None) -> str:
    """Return what tells code made by a record from other code; empty for the default."""
    return "" if record is None else record.mark


def schedule_digest(scheduled: Kernel) -> str:
    """Return what stands for a scheduled nest, whatever its names and the way that led there."""
    with importing:
        from weft.ir.text.text import canonical_text

    bare = scheduled.replace(meta=scheduled.meta.replace(schedule=(), hints=()))
    return digest_of(canonical_text(bare))


def recorded(kernel: Kernel, record: Record, context: Context) -> tuple[Kernel, str] | None:
    """Return the schedule and the pipeline that a record asks for.

    None if it no longer applies: strategies have changed since.
    """
    with importing:
        from weft.schedule.choices import Choices
    with importing:
        from weft.driver.pipeline import without_threads
        from weft.strategies import choose

    scheduled = choose(without_threads(kernel, context), context.target, context.threads,
                       Choices(record.choices))  # fmt: skip
    if schedule_digest(scheduled) == record.digest and record.pipeline in PIPELINES:
        return scheduled, record.pipeline
    if debug(Debug.AUTOTUNE):
        print(f"weft: the tuning record of {kernel.name} ({kernel.meta.kind}) no longer applies: "
              "its choices lead to another schedule now; the default is used", file=sys.stderr)
    return None


__all__ = ["PIPELINES", "find", "mark", "record_key", "recorded", "schedule_digest"]
