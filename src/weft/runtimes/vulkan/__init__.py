"""Devices of Vulkan drivers, by the package vulkan."""
