"""Schedules of reductions over rows and over columns."""
