"""The public interface: `Tensor`, creation, random numbers, autograd, NumPy's protocols."""
