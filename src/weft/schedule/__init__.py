"""Legal rewrites of a loop nest: each proves its own legality and leaves a replayable trace."""

from weft.schedule.trace import Schedule, parse_line

__all__ = ["Schedule", "parse_line"]
