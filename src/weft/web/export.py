"""Write a function or a kernel as an ES module and a static page."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft.capture.dynamic import DynamicJitted
from weft.capture.jit import Jitted
from weft.driver.graph_key import Structure
from weft.driver.plans.plan_cache import device_plan_for
from weft.errors import LaunchError, UnsupportedError
from weft.ir.expr import Expr
from weft.lang.launch.launch import Configured, KernelFunction
from weft.web import files
from weft.web.capture import capture_for_browser
from weft.web.device import browser
from weft.web.inputs import Constant, Given, arguments_of
from weft.web.plan_data import plan_data
from weft.web.weights import FILE, Weights

__all__ = ["export"]

_THREADS: Final = 256  # of a block, where nobody says: the most that every adapter has


def export(function: Callable[..., Any], folder: str | Path, inputs: Any = None, *,
           name: str = "", grid: Any = None, block: Any = None, page: bool = True,
           file_bytes: int = FILE) -> list[Path]:  # fmt: skip
    """Write a function as an ES module that runs by WebGPU in browsers.

    Nothing is needed there but a static host: ``import {load} from "./NAME.js"``, then
    ``const model = await load()`` and ``const [y] = await model(x)``. No adapter is needed here.

    Parameters
    ----------
    function
        Under `weft.jit`, a network, or any function of tensors; or a kernel, with or without the
        shape of its launch (``k[grid, block]``). Tensors that it knows by itself are its weights,
        with the values that they have now.
    folder
        Where to write; made if need be.
    inputs
        Example inputs in order, or by name: arrays and tensors, of which only types and sizes
        matter, containers of them, and constants. ``parse_inputs(["x=f32[n,8]"])``
        describes them, also with sizes that change from call to call. Without it the attribute
        ``example_inputs`` of the function is taken.
    name
        What the files are called; by default as the function.
    grid, block
        The launch of a kernel: by default blocks of 256 threads, a thread for each element of its
        largest array.
    page
        Whether to write ``index.html``, too.
    file_bytes
        The most bytes of a file of weights.

    Returns
    -------
    list of Path
        What was written: ``NAME.js``, ``NAME.d.ts``, ``NAME.plan.json``, the weights, ``weft.js``,
        ``weft.d.ts``, and the page.

    Raises
    ------
    UnsupportedError
        If there are no example inputs, or the function does what a page cannot: it changes tensors
        that it is not given, draws random numbers, uses types that WebGPU lacks.
    CaptureError, ShapeError, ...
        As calls of the function under `weft.jit`.
    """
    plain, called = _plain(function)
    if inputs is None:
        inputs = getattr(function, "example_inputs", None)
    if callable(inputs):
        inputs = inputs()
    if inputs is None:
        raise UnsupportedError("compile", found="no example inputs",
                               expected="types and sizes of the arguments",
                               hint="--input x=f32[1,28,28], or f.example_inputs = (array, ...)")
    if not isinstance(inputs, Mapping | tuple | list):
        inputs = (inputs,)
    given = arguments_of(plain if called is None else called.__weft_function__, inputs,
                         called is not None)
    if isinstance(function, DynamicJitted):
        given = _with_dynamic_axes(given, function)
    if called is not None:
        plain = _launched(plain, given, grid, block)
    name = files.checked_name(name or getattr(function, "__name__", "") or type(function).__name__)
    device = browser()
    captured = capture_for_browser(plain, given)
    structure = Structure(captured.roots)
    if not structure.devices:  # what reads no array could be computed anywhere
        structure.context, structure.key = device, (*structure.key, "on", device.name, ())
    plan = device_plan_for(structure, captured.roots, "exported plans")
    slots = {storage: i for i, storage in enumerate(structure.leaves)}
    weights = Weights({slots[new]: old for new, old in captured.weights.items() if new in slots},
                      file_bytes)
    inputs_at = [(array, slots.get(storage)) for array, storage in captured.inputs]
    text = inspect.getdoc(function if called is None else called.__weft_function__) or ""
    data = plan_data(name, text, plan, structure.nodes, inputs_at, captured.outputs, weights)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = files.write_module(name, text, [a for a, _ in captured.inputs],
                                 [a for a, _ in captured.outputs], folder)
    path = folder / f"{name}.plan.json"
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
    written += [path, *weights.write(name, folder)]
    return written + (files.write_page(name, folder) if page else [])


def _plain(function: Any) -> tuple[Callable[..., Any], KernelFunction | None]:
    """Return what is called in the capture, and the kernel that it launches, if it is one."""
    if isinstance(function, Configured):
        return function, function.kernel
    if isinstance(function, KernelFunction):
        return function, function
    if isinstance(function, Jitted):
        return function._function, None
    if not callable(function):
        raise UnsupportedError("compile", found=f"a {type(function).__name__}",
                               expected="a function under @weft.jit or a kernel")
    return function, None


def _with_dynamic_axes(given: Given, function: DynamicJitted[..., Any]) -> Given:
    """Return arguments of which axes have the variables that ``dynamic=`` names."""
    shapes = list(given.shapes)
    for spec in function._specs:
        name = given.names[spec.position] if spec.position is not None else spec.name
        if name in given.arrays:
            i = given.arrays.index(name)
            sizes = list(shapes[i])
            for axis, variable in spec.axes:
                sizes[axis] = variable
            shapes[i] = tuple(sizes)
    return given._replace(shapes=shapes)


def _launched(function: Any, given: Given, grid: Any, block: Any) -> Callable[..., None]:
    """Return a function that launches a kernel."""
    launch = _configured(function, given, grid, block) if isinstance(
        function, KernelFunction) else function

    def launched(*args: Any) -> None:
        launch(*[a.value if type(a) is Constant else a for a in args])

    return launched


def _configured(kernel: KernelFunction, given: Given, grid: Any, block: Any) -> Configured:
    """Return a kernel with the shape of its launch."""
    block = block or kernel.options.workgroup or _THREADS
    if grid is None:
        if not isinstance(block, int) and len(tuple(block)) > 1:
            raise LaunchError(f"launch of {kernel.__name__}", found=f"a block of {block}, no grid",
                              expected="a grid, too", hint="--grid 16,16")
        threads = block if isinstance(block, int) else next(iter(block))
        grid = -(-max(map(_size, given.shapes)) // threads)
    return kernel[grid, block]


def _size(shape: Sequence[int | Expr]) -> int:
    """Return the number of elements, at most."""
    total = 1
    for n in shape:
        total *= n if isinstance(n, int) else n.attr.max
    return max(total, 1)
