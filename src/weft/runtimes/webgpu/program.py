"""Kernels in WGSL on a device: pipelines for each way in which arrays share bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import CompileError
from weft.runtimes.base import Loadable
from weft.runtimes.launches.programs import DriverProgram, DriverPrograms
from weft.runtimes.webgpu.bindings import header_of, module

if TYPE_CHECKING:
    from weft.runtimes.webgpu.session import Session

__all__ = ["MOST_SCRATCH", "Built", "Programs", "WebGPUProgram"]

MOST_SCRATCH: Final = 64 << 20  # bytes of scratch memory of a launch
_SAID: Final = 4000  # characters of a driver's words in an error
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


class WebGPUProgram(DriverProgram):
    """A kernel on a device.

    Attributes
    ----------
    wgsl : WGSLHeader
        What its image says of bindings.
    """

    __slots__ = ("_image", "wgsl")

    session: Session

    def __init__(self, session: Session, code: Loadable, image: _Image) -> None:
        self._image, self.wgsl = image, image.header
        super().__init__(session, code, self.wgsl.launch, _GROUPS,
                         int(session.facts["max_groups"]), MOST_SCRATCH)  # fmt: skip

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
        text = module(self._image.text, self.wgsl, groups)
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
        session, header = self.session, self.wgsl
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


class Programs(DriverPrograms):
    """The programs of a device."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._session = session

    def built(self, name: str, image: bytes) -> _Image:
        """Return an image, of which nothing is built yet."""
        return _Image(name, image)

    def program(self, code: Loadable, built: _Image) -> WebGPUProgram:
        """Return a program of an image.

        Raises
        ------
        CompileError
            If the image has other arguments, or the driver refuses its text.
        """
        given = (code.nbuffers, len(code.variables))
        said = (len(built.header.memories), len(built.header.variables))
        if given != said:
            raise CompileError(code.name, found=f"an image of {said[0]} arrays and {said[1]} "
                               "variables", expected=f"{given[0]} and {given[1]}")
        program = WebGPUProgram(self._session, code, built)
        if not built.modules:  # what is wrong with the text is said here
            program.compiled((0,) * code.nbuffers)
        return program
