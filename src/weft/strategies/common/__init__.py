"""What strategies share: patterns of contractions, tile sizes, prefetches, rounding."""
