"""Kernels in Python: the language of ``@weft.kernel``, from its syntax tree to loop level."""
