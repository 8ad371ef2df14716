"""Files of an export that are text: module, types, page; the runtime is copied beside them."""

from __future__ import annotations

import html
import json
import keyword
import re
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import Final

from weft.errors import UnsupportedError
from weft.web.capture import Array

__all__ = ["checked_name", "write_module", "write_page"]

_STATIC: Final = resources("weft.web").joinpath("static")
_RUNTIME: Final = ("weft.js", "weft.d.ts")
_MODULE: Final = Template("""\
// Written by `weft compile`. It needs weft.js, $name.plan.json and the weights beside it.
import { load as loadPlan } from "./weft.js";

export * from "./weft.js";

/** Load the model; see $name.d.ts for its inputs and results. */
export const load = (options) => (
  loadPlan(new URL("./$name.plan.json", import.meta.url), options));
""")
_TYPES: Final = Template("""\
// Written by `weft compile`.
import type { Input, LoadOptions, Model, Tensor } from "./weft.js";

export * from "./weft.js";

export type Inputs = [$inputs];
export type Outputs = [$outputs];

/** Load the model; then `const [$first] = await model($names)`. */
export declare function load(options?: LoadOptions): Promise<Model<Inputs, Outputs>>;
""")


def checked_name(name: str) -> str:
    """Return a name that files and modules may have.

    Raises
    ------
    UnsupportedError
        If it is none.
    """
    if not re.fullmatch(r"\w[\w-]*", name):
        raise UnsupportedError("compile", found=f"the name {name!r}",
                               expected="letters, digits, _ and -", hint="give another by name=")
    return name


def write_module(name: str, text: str, inputs: Sequence[Array], outputs: Sequence[Array],
                 folder: Path) -> list[Path]:  # fmt: skip
    """Write the runtime, and the module of a function with its types; return their paths."""
    paths = [_write(folder / file, _STATIC.joinpath(file).read_text("utf-8")) for file in _RUNTIME]
    paths.append(_write(folder / f"{name}.js", _MODULE.substitute(name=name)))
    names = [_identifier(a.name) for a in inputs]
    types = _TYPES.substitute(
        inputs=", ".join(f'{n}: Input<"{a.dtype.name}">' for n, a in zip(names, inputs,
                                                                         strict=True)),
        outputs=", ".join(f'{_identifier(a.name)}: Tensor<"{a.dtype.name}">' for a in outputs),
        first=_identifier(outputs[0].name), names=", ".join(names))
    paths.append(_write(folder / f"{name}.d.ts", types))
    return paths


def write_page(name: str, folder: Path) -> list[Path]:
    """Write the page, and its script; return their paths."""
    page = Template(_STATIC.joinpath("index.html").read_text("utf-8"))
    text = page.substitute(title=html.escape(name), module=json.dumps(f"./{name}.js"))
    script = _STATIC.joinpath("page.js").read_text("utf-8")
    return [_write(folder / "index.html", text), _write(folder / "page.js", script)]


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _identifier(name: str) -> str:
    """Return a name as TypeScript takes it for an element of a tuple."""
    made = re.sub(r"\W", "_", name)
    reserved = keyword.iskeyword(made) or made in ("function", "var", "new", "delete", "this")
    return f"_{made}" if reserved or made[:1].isdigit() else made
