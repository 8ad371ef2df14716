"""Seeds for tests that show them in their names: alike in all processes of a run."""

import os

import numpy as np


def seeds(count):
    """Return some fresh seeds; WEFT_TEST_SEED repeats them."""
    return np.random.SeedSequence(int(os.environ["WEFT_TEST_SEED"])).generate_state(count).tolist()
