"""Thread blocks as loops: loop fission at barriers, coarsening, divergence, grids."""
