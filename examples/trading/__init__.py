"""A trading system on a replayed order book, its critical path compiled by Weft."""
