"""Kernels of threads by calls: what `Builder` has for the threads of a grid of blocks."""

from __future__ import annotations

from typing import Any

from weft.errors import outermost_methods
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Body as Stmts
from weft.lang.builder.builder import Builder
from weft.lang.builder.parameters import Signature
from weft.lang.builder.places import At
from weft.lang.builder.programs import BuiltKernel
from weft.lang.builder.values import Array, Scalar
from weft.lang.core import scalars
from weft.lang.core.intrinsics import WARP

__all__ = ["KernelBuilder"]

_MOST_BLOCKS = (1 << 31) - 1
_MOST_THREADS = 1024


@outermost_methods
class KernelBuilder(Builder):
    """Writes what one thread of a kernel does; see `weft.build.kernel`."""

    threads = True

    def _specials(self) -> None:
        """Enter indices and sizes of the launch; the size of a block is filled in by a launch."""
        low = self._low
        self._sizes: dict[str, Expr] = {}
        for axis in "xyz":
            for kind, size, most in (("block", "grid", _MOST_BLOCKS),
                                     ("thread", "blockdim", _MOST_THREADS)):
                index = ex.var(f"{kind}.{axis}", dt.int64)
                extent = ex.Variable(f"{size}.{axis}", 1, most)
                low.name(str(index.attr))
                low.name(f"{size}.{axis}")
                low.visible_in(index)
                low.limits[index] = (0, extent - 1)
                low.specials[f"{kind}.{axis}"] = index
                low.specials[f"{'gridDim' if kind == 'block' else 'blockDim'}.{axis}"] = extent
        s = low.specials
        number = s["thread.x"] + (s["thread.y"] + s["thread.z"] * s["blockDim.y"]) * s["blockDim.x"]
        low.specials["laneid"] = number % WARP

    def _special(self, name: str, axis: str, at: Any) -> Scalar:
        with self._reading(at) as place:
            found = self._low.specials.get(f"{name}.{axis}")
            if found is None:
                raise self._low.wrong(place, f"the axis {axis!r}", "x, y or z")
            return Scalar(self, scalars.coordinate(found))

    def thread(self, axis: str = "x", *, at: At | None = None) -> Scalar:
        """Return the index of the thread in its block."""
        return self._special("thread", axis, at)

    def block(self, axis: str = "x", *, at: At | None = None) -> Scalar:
        """Return the index of the block in the grid."""
        return self._special("block", axis, at)

    def block_size(self, axis: str = "x", *, at: At | None = None) -> Scalar:
        """Return how many threads a block has."""
        return self._special("blockDim", axis, at)

    def grid_size(self, axis: str = "x", *, at: At | None = None) -> Scalar:
        """Return how many blocks the grid has."""
        return self._special("gridDim", axis, at)

    def grid(self, ndim: int = 1, *, at: At | None = None) -> Any:
        """Return the index of the thread in the whole grid: one number, or a tuple."""
        return self.call("grid", ndim, at=at)

    def shared(self, name: str, dtype: Any, shape: Any, *, at: At | None = None) -> Array:
        """Declare memory that the threads of a block share, without values."""
        return self._memory("shared", name, dtype, shape, at)

    def barrier(self, *, at: At | None = None) -> None:
        """Wait for all threads of the block."""
        self.call("syncthreads", at=at)

    def _made(self, body: Stmts, signature: Signature) -> BuiltKernel:
        return BuiltKernel(self._kernel(body, ()), tuple(self._low.shared), signature,
                           self._low.specials)
