"""What the two tiers cost to compile, and how fast their code is.

    python bench/tiers.py [--threads 2]

The kernels are those of a training step of a small transformer (forward, backward, AdamW). Both
tiers are timed from the loop nest to machine code, in Python and in LLVM, and run on arrays of
their own.
"""

import argparse
import os
import statistics
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "2")))
parser.add_argument("--each", action="store_true", help="show every kernel")
args = parser.parse_args()
os.environ["WEFT_NUM_THREADS"] = str(args.threads)
folder = tempfile.TemporaryDirectory()
os.environ["WEFT_CACHE_DIR"] = folder.name

import numpy as np  # noqa: E402

import weft  # noqa: E402
from weft import nn, optim  # noqa: E402
from weft.driver import counters, pipeline  # noqa: E402
from weft.driver.context import host_context  # noqa: E402
from weft.driver.kernels import key_of, symbol  # noqa: E402
from weft.driver.report.profile import time_kernel  # noqa: E402
from weft.nn import functional  # noqa: E402

WIDTH, HEADS, COUNT, WORDS = 256, 4, 64, 1000
rng = np.random.default_rng(1)


def weights(*shape):
    return nn.Parameter(weft.from_numpy(rng.standard_normal(shape, dtype=np.float32) * 0.02))


names = {"words": (WORDS, WIDTH), "scale": (WIDTH,), "shift": (WIDTH,), "qkv": (WIDTH, 3 * WIDTH),
         "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
p = {name: weights(*shape) for name, shape in names.items()}
optimizer = optim.AdamW(p.values())


def step(ids, targets):
    optimizer.zero_grad()
    x = p["words"][ids]
    h = functional.layer_norm(x, (WIDTH,), p["scale"], p["shift"])
    parts = (h @ p["qkv"]).reshape(COUNT, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
    mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
    x = x + mixed.permute(1, 0, 2).reshape(COUNT, WIDTH) @ p["out"]
    x = x + functional.gelu(x @ p["up"]) @ p["down"]
    loss = functional.cross_entropy(x @ p["words"].transpose(0, 1), targets)
    loss.backward()
    optimizer.step()
    return loss


ids, targets = (weft.from_numpy(rng.integers(0, WORDS, COUNT)) for _ in range(2))
with counters.record() as recording:
    weft.jit(step)(ids, targets).item()
rows = {}
for number, nest in enumerate({b.nest.name: b.nest for b in recording.built}.values()):
    both = []
    for tier in (pipeline.QUICK, pipeline.FULL):
        name = symbol(key_of(nest, host_context()))
        tries = [pipeline.build(nest, name, host_context(), tier) for _ in range(3)]
        built = min(tries, key=lambda b: b.effort.python + b.effort.llvm)
        timing = time_kernel(built)
        both.append((built.effort, timing.seconds * 1e6 if timing else float("nan")))
    rows[number] = (nest.meta.kind, *both)
print(f"{len(rows)} kernels; ms of Python + LLVM, and us of one run, in the median")
for title, at in (("first tier", 1), ("full tier", 2)):
    efforts = [row[at][0] for row in rows.values()]
    python, llvm = ([getattr(e, which) for e in efforts] for which in ("python", "llvm"))
    print(f"{title:10}  {statistics.median(python):6.2f} + {statistics.median(llvm):6.2f} ms, "
          f"in all {sum(python) + sum(llvm):7.1f} ms, "
          f"run {statistics.median(row[at][1] for row in rows.values()):8.1f} us")
ratios = [(full[0].python + full[0].llvm) / (quick[0].python + quick[0].llvm)
          for _, quick, full in rows.values()]
slower = [quick[1] / full[1] for _, quick, full in rows.values() if quick[1] == quick[1]]
whole = [sum(e.python + e.llvm for e in (row[at][0] for row in rows.values())) for at in (1, 2)]
print(f"compiles x{statistics.median(ratios):.1f} faster (least {min(ratios):.1f}, in all "
      f"{whole[1] / whole[0]:.1f}), "
      f"runs x{statistics.median(slower):.1f} slower (most {max(slower):.1f})")
if args.each:
    for kind, quick, full in rows.values():
        print(f"{kind:12} {quick[0].python:6.2f} + {quick[0].llvm:6.2f}   {full[0].python:6.2f} + "
              f"{full[0].llvm:6.2f} ms   {quick[1]:8.1f} {full[1]:8.1f} us")
