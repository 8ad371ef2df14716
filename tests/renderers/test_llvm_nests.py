"""Random nests through every pass and the compiler, bit for bit as the loop nest is interpreted."""

import sys
from pathlib import Path

import compiled
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends import cpu
from weft.ir.interpret.interpret import run
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

sys.path.append(str(Path(__file__).parent.parent / "passes"))
from nests import nests, random_arrays, same_bits


@settings(max_examples=25)
@given(nests(), st.integers(0, 1000))
def test_random_nests(k, seed):
    arrays = random_arrays(k, seed=seed)
    expected = {name: a.copy() for name, a in arrays.items()}
    with np.errstate(all="ignore"):
        run(k, expected)
    made = linearize(vectorize(legalize(k, cpu.host_target())))
    code, _ = compiled.run(made, [arrays[m.name] for m in k.params])
    assert code == 0
    for name, want in expected.items():
        assert same_bits(want, arrays[name]), name
