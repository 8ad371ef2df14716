"""``weft explain --html``: one page with everything, which needs no other file and no network."""

from __future__ import annotations

import json
import linecache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.cli.explain_summary import LEVELS, seconds_of, summary, texts_of

if TYPE_CHECKING:
    from weft.driver.report.explain import Explained
    from weft.driver.report.profile import Peaks

__all__ = ["page_of", "write"]

_TITLES: Final = ("#", "line", "kind", "launches", "time", "share", "GB/s", "of peak", "GFLOP/s",
                  "of peak")  # fmt: skip
_STYLE: Final = """
body { font: 14px system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 2px 10px; text-align: right; }
td:nth-child(2), td:nth-child(3) { text-align: left; }
tr:nth-child(even) td { background: #f4f4f8; }
pre { background: #f8f8fb; padding: 8px; overflow: auto; max-height: 40em; font-size: 12px; }
.code span { display: block; cursor: default; } .code span[data-kernels] { cursor: pointer; }
.code span[data-kernels]:hover, .marked { background: #ffe9a8; }
section { border-top: 1px solid #ccc; margin-top: 1em; } summary { cursor: pointer; }
@media (prefers-color-scheme: dark) { body { background: #181820; color: #ddd; }
  pre, tr:nth-child(even) td { background: #22222c; } a { color: #8cf; }
  .code span[data-kernels]:hover, .marked { background: #554400; } }
"""
_SCRIPT: Final = """
const clear = () => document.querySelectorAll(".marked").forEach(e => e.classList.remove("marked"));
document.querySelectorAll("[data-kernels]").forEach(line => line.addEventListener("click", () => {
  clear(); line.classList.add("marked");
  JSON.parse(line.dataset.kernels).forEach(n => {
    const title = document.getElementById("kernel-" + n); title.classList.add("marked");
    title.scrollIntoView({block: "nearest"}); });
}));
const links = document.querySelectorAll("a[href^='#line-']");
links.forEach(link => link.addEventListener("click", () => {
  clear(); document.getElementById(link.hash.slice(1)).classList.add("marked"); }));
document.body.dataset.kernels = document.querySelectorAll("section.kernel").length;
"""


def write(file: str, script: str, found: list[Explained], machine: Peaks) -> None:
    """Write the page of a program to a file."""
    Path(file).write_text(page_of(script, found, machine), encoding="utf-8")


def page_of(script: str, found: list[Explained], machine: Peaks) -> str:
    """Return the page: a summary, the sources, each kernel at each level; all linked both ways."""
    files = {f: i for i, f in enumerate(dict.fromkeys(f for k in found for f, _ in k.lines))}
    total = seconds_of(found)
    head = "".join(f"<th>{title}</th>" for title in _TITLES)
    rows = "".join(_row(n, k, total, machine, files) for n, k in enumerate(found))
    sources = "".join(_source(file, number, found) for file, number in files.items())
    kernels = "".join(_kernel(n, k, files) for n, k in enumerate(found))
    name = escape(Path(script).name)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{name}: kernels</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'unsafe-inline'">
<style>{_STYLE}</style></head><body>
<h1>{name}</h1>
<p>{len(found)} kernels take {total * 1e3:.3f} ms, each timed alone; the machine reads
{machine.bandwidth:.1f} GB/s and computes {machine.flops:.0f} GFLOP/s of float32.</p>
<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
{sources}{kernels}
<script>{_SCRIPT}</script></body></html>
"""


def _place(kernel: Explained, files: dict[str, int]) -> str:
    """Return links to the lines of a kernel."""
    return ", ".join(
        f'<a href="#line-{files[file]}-{line}">{escape(Path(file).name)}:{line}</a>'
        for file, line in kernel.lines[:8])


def _row(number: int, kernel: Explained, total: float, machine: Peaks,
         files: dict[str, int]) -> str:  # fmt: skip
    row = summary(kernel, total, machine)
    cells = [f'<a href="#kernel-{number}">{number}</a>', _place(kernel, files),
             escape("random numbers" if kernel.is_random else kernel.kind),
             *map(escape, row[1:])]  # fmt: skip
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def _source(file: str, number: int, found: list[Explained]) -> str:
    """Return a file of the user with its lines linked to kernels."""
    by_line: dict[int, list[int]] = {}
    for k, kernel in enumerate(found):
        for where, line in kernel.lines:
            if where == file:
                by_line.setdefault(line, []).append(k)
    lines = []
    for line, text in enumerate(linecache.getlines(file), 1):
        marks = f' data-kernels="{json.dumps(by_line[line])}"' if line in by_line else ""
        lines.append(f'<span id="line-{number}-{line}"{marks}>{line:4} {escape(text.rstrip())}'
                     "</span>")
    body = "".join(lines) or "(its text is not there)"
    return f'<h2>{escape(Path(file).name)}</h2><pre class="code">{body}</pre>'


def _kernel(number: int, kernel: Explained, files: dict[str, int]) -> str:
    texts = texts_of(kernel)
    why = "".join(f"<li>{escape(w)}</li>" for w in kernel.why)
    levels = "".join(
        f"<details><summary>{level}</summary><pre>{escape(texts[level]() or '(none)')}</pre>"
        "</details>" for level in LEVELS)
    return (f'<section class="kernel"><h2 id="kernel-{number}">kernel {number}: '
            f"{escape(kernel.kind)}</h2><p>{_place(kernel, files)}</p><ul>{why}</ul>{levels}"
            "</section>")  # fmt: skip
