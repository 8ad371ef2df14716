"""Values of the kernel language, their element types, and the emitter of loop-level statements."""
