"""Schedules of matrix products: register tiles, dot products, GEMV, skinny GEMM."""
