"""What runtimes of drivers share: the line that describes an image, and what kernels print."""
