"""Native calls from Python: captured functions, launches, critical functions."""
