"""Order of launches, concurrency, in-place results, and the arena of intermediate arrays."""
