"""Kernels in WGSL on a device: pipelines for each way in which arrays share bindings."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import CompileError
from weft.locks import mutex
from weft.runtimes.base import Loadable
from weft.runtimes.webgpu.bindings import WGSLHeader, header_of, module

if TYPE_CHECKING:
    from weft.runtimes.webgpu.session import Session

__all__ = ["MOST_SCRATCH", "Built", "Programs", "WebGPUProgram"]

MOST_SCRATCH: Final = 64 << 20  # bytes of scratch memory of a launch
_SAID: Final = 4000  # characters of a driver's words in an error
_KEPT: Final = 128  # images that stay loaded
_GROUPS: Final = 1024  # work-groups of a launch that says nothing of their number


class Built(NamedTuple):
    """Pipelines for one way of sharing bindings: their layout, and one for each entry."""

    layout: Any
    pipelines: tuple[Any, ...]


class _Image:
    """An image, and what was built of it so far."""

    def __init__(self, name: str, image: bytes) -> None:
        self.text, self.header = header_of(name, image)
        self.built: dict[tuple[int, ...], Built] = {}
        self.modules: dict[tuple[int, ...], Any] = {}


class WebGPUProgram:
    """A kernel on a device.

    Attributes
    ----------
    name : str
        Of the kernel.
    header : WGSLHeader
        What its image says.
    counts : tuple of int
        Work-groups that each entry is launched with.
    scratch : int
        Bytes of scratch memory of a launch.
    """

    __slots__ = ("_image", "counts", "header", "name", "nbuffers", "nvariables", "scratch",
                 "session")  # fmt: skip

    def __init__(self, session: Session, code: Loadable, image: _Image) -> None:
        self.session, self.name, self._image = session, code.name, image
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)
        self.header: WGSLHeader = image.header
        launch = self.header.launch
        most = int(session.facts["max_groups"])
        counts = []
        for entry in launch.entries:
            count = min(entry.groups or _GROUPS, most)
            if launch.own:
                count = min(count, (MOST_SCRATCH - launch.shared) // (launch.own * entry.items))
            counts.append(max(count, 1))
        self.counts = tuple(counts)
        items = max(n * e.items for n, e in zip(counts, launch.entries, strict=True))
        self.scratch = launch.shared + launch.own * items

    @property
    def may_fail(self) -> bool:
        """Whether a launch may fail, be it by the driver alone."""
        return self.header.launch.fails

    def built(self, groups: tuple[int, ...]) -> Built:
        """Return pipelines for arrays that share bindings as `groups` say.

        Raises
        ------
        CompileError
            If the driver refuses the module; the message has what its compiler says.
        """
        found = self._image.built.get(groups)
        if found is None:
            found = self._image.built[groups] = self._build(groups)
        return found

    def compiled(self, groups: tuple[int, ...]) -> Any:
        """Return the module for a way of sharing bindings; see `built`."""
        found = self._image.modules.get(groups)
        if found is not None:
            return found
        text = module(self._image.text, self.header, groups)
        session = self.session
        try:
            found = session.device.create_shader_module(label=self.name, code=text)
        except session.errors as error:
            raise self._refused(error) from error
        self._image.modules[groups] = found
        return found

    def _refused(self, error: Exception) -> CompileError:
        said = "\n".join(line.rstrip() for line in str(error).strip().splitlines())[:_SAID]
        return CompileError(self.name, found=f"WGSL that {self.session.name} refuses: {said}",
                            expected="WGSL without extensions")

    def _build(self, groups: tuple[int, ...]) -> Built:
        session, header = self.session, self.header
        bound = header.bindings(groups)
        shaders = self.compiled(groups)
        device, stage = session.device, session.wgpu.ShaderStage.COMPUTE
        kinds = ["uniform" if what == "uniform" else "storage" for what in bound]
        try:
            layout = device.create_bind_group_layout(entries=[
                {"binding": k, "visibility": stage, "buffer": {"type": kind}}
                for k, kind in enumerate(kinds)])
            whole = device.create_pipeline_layout(bind_group_layouts=[layout])
            constants = {"weft_fused": True} if header.fused and session.fused else {}
            pipelines = tuple([
                device.create_compute_pipeline(label=entry.name, layout=whole, compute={
                    "module": shaders, "entry_point": entry.name, "constants": constants})
                for entry in header.launch.entries])
        except session.errors as error:
            raise self._refused(error) from error
        return Built(layout, pipelines)


class Programs:
    """The programs of a device; those used last stay loaded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = mutex()
        self._kept: OrderedDict[bytes, _Image] = OrderedDict()

    def load(self, code: Loadable) -> WebGPUProgram:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the image is not what its first line says, or the driver refuses its text.
        """
        self._session.check()
        image = bytes(code.image)
        with self._lock:
            held = self._kept.get(image)
            if held is not None:
                self._kept.move_to_end(image)
        if held is None:
            held = _Image(code.name, image)
            with self._lock:
                held = self._kept.setdefault(image, held)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        given = (code.nbuffers, len(code.variables))
        said = (len(held.header.memories), len(held.header.variables))
        if given != said:
            raise CompileError(code.name, found=f"an image of {said[0]} arrays and {said[1]} "
                               "variables", expected=f"{given[0]} and {given[1]}")
        program = WebGPUProgram(self._session, code, held)
        if not held.modules:  # what is wrong with the text is said here
            program.compiled((0,) * code.nbuffers)
        return program
