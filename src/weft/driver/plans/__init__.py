"""Plans: the host program of a graph, its arena by sizes, and the cache of plans."""
