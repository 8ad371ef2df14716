"""What all kinds of nests are lowered with: groups, axes, index maps, costs, the emitter."""
