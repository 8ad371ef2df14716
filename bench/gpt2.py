"""A transformer of GPT-2-small's size (12 layers, 768 wide, random weights): compile and run.

    python bench/gpt2.py [--threads 2] [--tokens 64] [--layers 12] [--no-torch]

Prints the time until the first result (cold: the cache is cleared; warm: a second process), the
time of a call, and PyTorch eager beside it; both must give the same logits.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "2")))
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

WIDTH, HEADS, VOCABULARY = 768, 12, 50257


def weights(rng, np):
    """Return the parameters as NumPy arrays, in PyTorch's naming."""
    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    out = {"tokens": normal(VOCABULARY, WIDTH), "positions": normal(1024, WIDTH)}
    for i in range(args.layers):
        out[f"{i}.norm1"], out[f"{i}.norm2"] = (np.ones(WIDTH, np.float32) for _ in range(2))
        out[f"{i}.shift1"], out[f"{i}.shift2"] = (np.zeros(WIDTH, np.float32) for _ in range(2))
        for part, rows in (("qkv", 3 * WIDTH), ("proj", WIDTH)):
            out[f"{i}.{part}"], out[f"{i}.{part}_bias"] = normal(WIDTH, rows), normal(rows)
        out[f"{i}.up"], out[f"{i}.up_bias"] = normal(WIDTH, 4 * WIDTH), normal(4 * WIDTH)
        out[f"{i}.down"], out[f"{i}.down_bias"] = normal(4 * WIDTH, WIDTH), normal(WIDTH)
    return out


def forward(lib, functional, p, ids):
    """Return the logits; `lib` is weft or torch, whose spellings agree."""
    count = ids.shape[0]
    x = p["tokens"][ids] + p["positions"][:count]
    for i in range(args.layers):
        h = functional.layer_norm(x, (WIDTH,), p[f"{i}.norm1"], p[f"{i}.shift1"])
        qkv = h @ p[f"{i}.qkv"] + p[f"{i}.qkv_bias"]
        heads = qkv.reshape(count, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2],
                                                        is_causal=True)
        mixed = mixed.permute(1, 0, 2).reshape(count, WIDTH)
        x = x + mixed @ p[f"{i}.proj"] + p[f"{i}.proj_bias"]
        h = functional.layer_norm(x, (WIDTH,), p[f"{i}.norm2"], p[f"{i}.shift2"])
        h = functional.gelu(h @ p[f"{i}.up"] + p[f"{i}.up_bias"], approximate="tanh")
        x = x + h @ p[f"{i}.down"] + p[f"{i}.down_bias"]
    return x @ p["tokens"].transpose(0, 1)


def timed(call):
    times = []
    end = time.perf_counter() + 3
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def child():
    import numpy as np

    import weft
    from weft.driver import counters as report
    from weft.nn import functional

    rng = np.random.default_rng(1)
    arrays = weights(rng, np)
    ids = rng.integers(0, VOCABULARY, args.tokens)
    p = {name: weft.from_numpy(a) for name, a in arrays.items()}
    model = weft.jit(lambda x: forward(weft, functional, p, x))
    given = weft.from_numpy(ids)
    start = time.perf_counter()
    logits = model(given).realize()
    first = time.perf_counter() - start
    counters = report.counters()
    compiled = int(counters.get("kernels compiled", 0))
    seconds = counters.get("compile seconds", 0.0)
    print(f"first call {first:.3f} s, of it {compiled} kernels compiled in {seconds:.2f} s")
    ours = timed(lambda: model(given).realize())
    print(f"weft {ours * 1e3:.1f} ms")
    if not args.torch:
        return
    import torch

    torch.set_num_threads(args.threads)
    q = {name: torch.from_numpy(a) for name, a in arrays.items()}
    index = torch.from_numpy(ids)
    with torch.no_grad():
        wanted = forward(torch, torch.nn.functional, q, index).numpy()
        theirs = timed(lambda: forward(torch, torch.nn.functional, q, index))
    error = float(np.abs(logits.numpy() - wanted).max() / np.abs(wanted).max())
    print(f"torch eager {theirs * 1e3:.1f} ms: weft x{theirs / ours:.2f}, error {error:.1e}")
    if error > 1e-4:
        sys.exit("the results differ")


if args.child:
    child()
else:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WEFT_CACHE_DIR": folder}
        options = [f"--threads={args.threads}", f"--tokens={args.tokens}",
                   f"--layers={args.layers}"]  # fmt: skip
        for title, torch_too in (("cold", False), ("warm", args.torch)):
            print(f"{title}: ", end="", flush=True)
            extra = [] if torch_too else ["--no-torch"]
            command = [sys.executable, __file__, "--child", *options, *extra]
            subprocess.run(command, env=environment, check=True)
