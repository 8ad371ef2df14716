"""``python -m weft``: the command line."""

from weft.cli import main

main()
