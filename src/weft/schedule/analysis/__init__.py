"""What primitives prove with: subscripts, dependence, linear inequalities, resources."""
