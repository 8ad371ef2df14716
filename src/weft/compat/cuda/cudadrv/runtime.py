"""The version of the toolkit that kernels are written for."""

__all__ = ["Runtime", "get_version", "is_supported_version", "runtime"]

_VERSION = (12, 0)  # what the names of Weft's kernels are those of


class Runtime:
    """What programs ask of the runtime."""

    def get_version(self) -> tuple[int, int]:
        """Return the version."""
        return _VERSION

    def is_supported_version(self) -> bool:
        """Return True."""
        return True

    @property
    def supported_versions(self) -> tuple[tuple[int, int], ...]:
        """Return the one version."""
        return (_VERSION,)


runtime = Runtime()
get_version, is_supported_version = runtime.get_version, runtime.is_supported_version
