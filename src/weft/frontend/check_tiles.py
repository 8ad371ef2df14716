"""Run as a child process: small products with tile registers, compared exactly.

It exits with 0 if all of them are right. A processor, hypervisor or kernel on which tile
instructions fail ends this process and not the user's.
"""

from __future__ import annotations

from weft.backends import cpu
from weft.ir import dtype as dt


def main() -> int:
    """Return how many products are wrong."""
    cpu.trust_tiles()
    import numpy as np

    from weft.frontend.creation import from_numpy

    wrong = 0
    rng = np.random.default_rng(0)
    for m, n, k in ((16, 16, 32), (48, 40, 70), (33, 64, 257)):
        for a_kind, b_kind in (("bf16", "bf16"), ("int8", "int8"), ("uint8", "int8")):
            a, b = (rng.integers(0 if kind == "uint8" else -4, 5, shape)
                    for kind, shape in ((a_kind, (m, k)), (b_kind, (k, n))))
            if a_kind == "bf16":
                x, y = (from_numpy(v.astype(np.float32)).astype(dt.bfloat16).realize()
                        .astype(dt.float32) for v in (a, b))
            else:
                x, y = (from_numpy(v.astype(kind)).astype(dt.int32)
                        for v, kind in ((a, a_kind), (b, b_kind)))
            wrong += not np.array_equal((x @ y).numpy(), a @ b)
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
