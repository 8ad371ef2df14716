"""Schedules of convolutions and their weight gradients."""
