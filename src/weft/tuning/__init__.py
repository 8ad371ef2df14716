"""Finds better schedules than the defaults by measuring: model, search, records, children."""
