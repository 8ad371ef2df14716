"""Elements chosen by a mask under `WEFT_CHECK`, which wants nothing of the memory behind them."""

from __future__ import annotations

import os
import subprocess
import sys


def test_what_is_behind_chosen_elements_is_not_compared() -> None:
    code = ("import weft\nx = weft.tensor([0.0, 1.0, 2.0])\n"
            "print(x[x > 0].tolist(), x.nonzero().tolist())")  # fmt: skip
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           check=False, env={**os.environ, "WEFT_CHECK": "1"})  # fmt: skip
    assert found.stdout.strip() == "[1.0, 2.0] [[1], [2]]", found.stderr
