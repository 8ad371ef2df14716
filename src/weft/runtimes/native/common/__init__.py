"""What the room is written with: the emitter of LLVM IR."""
