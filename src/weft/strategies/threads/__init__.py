"""Schedules for devices of threads: a group of work-items for each block of a result."""
