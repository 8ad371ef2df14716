"""Schedules for matrix units (AMX tiles) and dot-product instructions."""
