"""Operations of tensors, one family a module: each builds nodes of the graph."""
