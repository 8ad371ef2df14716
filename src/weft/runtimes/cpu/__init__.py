"""The CPU as a device: threads, executor, native calls, tile registers."""
