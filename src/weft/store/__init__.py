"""What outlives the process: the disk cache."""

from weft.store.disk import DiskCache, cache, fingerprint

__all__ = ["DiskCache", "cache", "fingerprint"]
