"""Running the launches of a kernel in the interpreter, whatever memory they take."""

from typing import Any

import numpy as np

from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_launch
from weft.renderers.launches.work_items import launches


def part_of(memory: Any, array: Any, at: int, shared: bool) -> Any:
    """Return the scratch memory of an array; of one that items have, up to the end."""
    size = array.dtype.itemsize
    count = array.size.attr if shared else (len(memory) - at) // size
    return memory[at : at + count * size].view(array.dtype.numpy)


def launched(kernel: Any, arrays: list[Any], variables: Any, groups: int, target: Any) -> Any:
    """Run all launches of a kernel, on scratch memory that holds something."""
    cut = launches(kernel, target)
    ends = [cut.nbytes, *(cut.nbytes + cut.per_item * x.items * groups for x in cut.launches)]
    memory = np.full(max(ends), 0x55, np.uint8)
    scratch = {n: part_of(memory, m, at, at < cut.nbytes) for n, (m, at) in cut.scratch.items()}
    for launch in cut.launches:
        assert all(i.kind == li.SERIAL for i in launch.code if isinstance(i, li.Loop))
        used = {i.memory.name: i.memory for i in launch.code
                if isinstance(i, li.LoadInst | li.StoreInst | li.AtomicInst)
                and i.memory.name in scratch}  # fmt: skip
        params = [m.replace(shape=(ex.index(scratch[n].size),)) for n, m in used.items()]
        renamed = {m.name: m for m in params}
        code = tuple([i.replace(memory=renamed[i.memory.name])
                      if getattr(i, "memory", None) is not None and i.memory.name in renamed else i
                      for i in launch.code])  # fmt: skip
        part = kernel.replace(code=code, params=(*kernel.params, *params))
        run_launch(part, min(launch.groups or groups, groups), launch.items,
                   [*arrays, *(scratch[m.name] for m in params)], variables)  # fmt: skip
    return cut
