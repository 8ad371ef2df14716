"""A small character transformer, trained on the documentation that comes with Python."""
