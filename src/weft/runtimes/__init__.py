"""Devices at work: memory, queues, events and launches."""
