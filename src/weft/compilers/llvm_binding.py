"""LLVM through llvmlite's own Python, whose interface is the same in every version.

For versions of llvmlite and systems that `weft.compilers.llvm_library` does not know; both offer
the same methods.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from weft.errors import CompileError

__all__ = ["BoundLibrary"]

_METHODS: Final = {"AlwaysInliner": "always_inliner", "SROA": "sroa",
                   "InstCombine": "instruction_combine", "SimplifyCFG": "simplify_cfg"}  # fmt: skip


class BoundLibrary:
    """LLVM's library as `llvmlite.binding` offers it, the native target registered.

    Attributes
    ----------
    version
        LLVM's version.
    room
        After how many libraries an engine should be left for a new one: never.
    """

    room: Final = sys.maxsize

    def __init__(self) -> None:
        import llvmlite.binding

        self._llvm: Any = llvmlite.binding
        self._llvm.initialize_native_target()
        self._llvm.initialize_native_asmprinter()
        self.version = ".".join(map(str, self._llvm.llvm_version_info))

    @property
    def lock(self) -> Any:
        """What llvmlite holds during each of its calls, those of the collector included."""
        return self._llvm.ffi.lib._lock

    def host(self) -> tuple[str, str, str]:
        """Return the triple of this process, the CPU's name and its features, sorted."""
        features = self._llvm.get_host_cpu_features().flatten()
        return self._llvm.get_process_triple(), self._llvm.get_host_cpu_name(), features

    def register_all_targets(self) -> None:
        """Register the targets of other machines."""
        self._llvm.initialize_all_targets()
        self._llvm.initialize_all_asmprinters()

    def machine(self, triple: str, cpu: str, features: str, level: int, jit: bool) -> Any:
        """Return what generates code for a target.

        Raises
        ------
        CompileError
            If LLVM does not know the triple.
        """
        try:
            target = self._llvm.Target.from_triple(triple)
            return target.create_target_machine(cpu=cpu, features=features, opt=level, reloc="pic",
                                                codemodel="small", jit=jit)
        except RuntimeError as error:
            raise CompileError("LLVM target", found=triple, hint=error) from error

    def translate(self, machine: Any, source: str, passes: Sequence[str] | int, small: bool,
                  product: str) -> bytes:  # fmt: skip
        """Return an ``object``, ``assembly`` or ``text`` made of LLVM IR.

        Parameters
        ----------
        machine
            What `machine` returned.
        source
            The IR.
        passes
            Names of passes to run, or the level of LLVM's own pipeline.
        small
            Whether that pipeline leaves out vectors and copies of loops.
        product
            What to make.

        Raises
        ------
        CompileError
            If the text does not parse or breaks a rule of LLVM IR.
        """
        llvm = self._llvm
        # A context for each module, or types and constants pile up for ever. The module holds
        # on to it and goes first: a Ctrl-C here must not leave it without its context.
        with self._parsed(source) as module:
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            if isinstance(passes, int) or passes:
                level = passes if isinstance(passes, int) else 1
                options = llvm.create_pipeline_tuning_options(speed_level=level)
                if isinstance(passes, int):  # before there is a builder, which copies them
                    options.loop_vectorization = options.slp_vectorization = (
                        level > 1 and not small
                    )
                    options.loop_unrolling = options.loop_interleaving = not small
                with llvm.create_pass_builder(machine, options) as builder:
                    if isinstance(passes, int):
                        manager = builder.getModulePassManager()
                    else:
                        manager = llvm.create_new_module_pass_manager()
                        for name in passes:
                            getattr(manager, f"add_{_METHODS[name]}_pass")()
                    manager.run(module, builder)
            if product == "object":
                image: bytes = machine.emit_object(module)
                return image
            text = machine.emit_assembly(module) if product == "assembly" else str(module)
            return bytes(text, "utf-8")

    def engine(self, machine: Any) -> Any:
        """Return what links objects into the process."""
        return self._llvm.create_lljit_compiler(machine, use_jit_link=True)

    def link(self, engine: Any, name: str, images: Sequence[bytes], imports: Mapping[str, int],
             exports: Iterable[str]) -> tuple[Any, dict[str, int]]:  # fmt: skip
        """Return what holds a new library in memory, and the addresses of its exported symbols.

        Raises
        ------
        CompileError
            If an object is not loadable or a symbol is missing.
        """
        builder = self._llvm.JITLibraryBuilder()
        for image in images:
            builder.add_object_img(image)
        for symbol, address in imports.items():
            builder.import_symbol(symbol, address)
        builder.add_current_process()
        names = tuple(exports)
        for symbol in names:
            builder.export_symbol(symbol)
        try:
            tracker = builder.link(engine, name)
        except RuntimeError as error:
            raise CompileError("LLVM link", found=str(error).strip()) from error
        return tracker, {symbol: tracker[symbol] for symbol in names}

    def _parsed(self, source: str) -> Any:
        try:
            module = self._llvm.parse_assembly(source, self._llvm.create_context())
        except (RuntimeError, UnicodeError) as error:  # a name that is no text
            found = str(error).removeprefix("LLVM IR parsing error\n")
            raise CompileError("LLVM", found=f"IR that does not parse: {found}") from error
        try:
            module.verify()
        except RuntimeError as error:
            module.close()
            raise CompileError("LLVM", found=f"IR that is not valid: {error}") from error
        return module
