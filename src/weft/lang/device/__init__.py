"""Operations of devices in kernels: `weft.gpu`, warps, matrix fragments, cooperative groups."""
