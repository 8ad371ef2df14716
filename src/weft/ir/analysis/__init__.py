"""Analyses of kernels: registers that hold names, spin locks."""
