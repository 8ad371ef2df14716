"""Growth of a process's resident memory over training steps, for Weft and PyTorch eager.

    python bench/memory.py [--model transformer|mlp|convolution] [--steps 3] [--threads 2]

Each model trains in a fresh process with AdamW, once per system, from the same weights and data.
What counts begins when the weights are in memory and a tiny step has loaded compilers and
libraries: gradients, the optimiser's state, activations, code. `peak` is the most that was resident
at any time, `kept` what is resident after the last step.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile

MODELS = ("transformer", "mlp", "convolution")
parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=MODELS, action="append")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "2")))
parser.add_argument("--child", choices=("weft", "torch"), help=argparse.SUPPRESS)
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

WIDTH, HEADS, LAYERS, WORDS, TOKENS = 512, 8, 6, 16000, 256


def resident(field="VmRSS"):
    """Return MiB of this process that are, or at most were, in memory."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) / 1024


def shapes(model):
    """Return the parameters by name."""
    if model == "mlp":
        return {f"w{i}": (1024, 1024) for i in range(8)} | {"out": (1024, 10)}
    if model == "convolution":
        widths = (3, 64, 64, 128, 128, 256)
        return {f"c{i}": (widths[i + 1], widths[i], 3, 3) for i in range(5)} | {"out": (256, 10)}
    found = {"words": (WORDS, WIDTH)}
    for i in range(LAYERS):
        found |= {f"{i}.scale": (WIDTH,), f"{i}.shift": (WIDTH,), f"{i}.qkv": (WIDTH, 3 * WIDTH),
                  f"{i}.out": (WIDTH, WIDTH), f"{i}.up": (WIDTH, 4 * WIDTH),
                  f"{i}.down": (4 * WIDTH, WIDTH)}
    return found


def forward(model, functional, p, x):
    """Return the logits; weft and torch spell everything alike."""
    if model == "mlp":
        for i in range(8):
            x = functional.relu(x @ p[f"w{i}"])
        return x @ p["out"]
    if model == "convolution":
        for i in range(5):
            x = functional.relu(functional.conv2d(x, p[f"c{i}"], padding=1))
            if i % 2:
                x = functional.max_pool2d(x, 2)
        return x.mean((2, 3)) @ p["out"]
    x = p["words"][x]
    for i in range(LAYERS):
        h = functional.layer_norm(x, (WIDTH,), p[f"{i}.scale"], p[f"{i}.shift"])
        parts = (h @ p[f"{i}.qkv"]).reshape(TOKENS, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2],
                                                        is_causal=True)
        x = x + mixed.permute(1, 0, 2).reshape(TOKENS, WIDTH) @ p[f"{i}.out"]
        x = x + functional.gelu(x @ p[f"{i}.up"]) @ p[f"{i}.down"]
    return x @ p["words"].transpose(0, 1)


def child(model, system):
    import numpy as np

    rng = np.random.default_rng(1)

    def data(*shape):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.03)

    arrays = {name: data(*shape) for name, shape in shapes(model).items()}
    if model == "transformer":
        x, y = rng.integers(0, WORDS, TOKENS), rng.integers(0, WORDS, TOKENS)
    else:
        x = data(256, 1024) if model == "mlp" else data(16, 3, 64, 64)
        y = rng.integers(0, 10, len(x))
    if system == "weft":
        import weft as lib
        from weft.nn import functional
        from weft.optim import AdamW
    else:
        import torch as lib
        from torch.nn import functional
        from torch.optim import AdamW

        lib.set_num_threads(args.threads)
    p = {}
    for name in list(arrays):
        p[name] = lib.tensor(arrays.pop(name)).requires_grad_()  # which copies
        if system == "weft":
            p[name].realize()
    ids, targets = lib.from_numpy(x), lib.from_numpy(y)
    optimizer = AdamW(list(p.values()), lr=1e-4)

    def step(x, y):
        optimizer.zero_grad()
        loss = functional.cross_entropy(forward(model, functional, p, x), y)
        loss.backward()
        optimizer.step()
        return loss

    def warm_up():
        """Load what any first step loads: compilers, libraries, threads."""
        w = lib.ones(8, 8).requires_grad_()
        optimizer = AdamW([w])
        functional.relu(w @ w).sum().backward()
        optimizer.step()
        return w.sum()

    (lib.jit(warm_up) if system == "weft" else warm_up)().item()
    call = lib.jit(step) if system == "weft" else step
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak begins here
    start = resident()
    losses = [call(ids, targets).item() for _ in range(args.steps)]
    print(f"{resident('VmHWM') - start:.1f} {resident() - start:.1f} {losses[-1]:.6f}")


if args.child:
    child(args.model[0], args.child)
    sys.exit()
for model in args.model or MODELS:
    count = sum(map(math.prod, shapes(model).values())) * 4 / 2**20
    figures = {}
    for system in ("weft", "torch"):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--child", system, "--model", model,
                       f"--steps={args.steps}", f"--threads={args.threads}"]
            done = subprocess.run(command, env={**os.environ, "WEFT_CACHE_DIR": folder},
                                  check=True, capture_output=True, text=True)
        figures[system] = tuple(map(float, done.stdout.split()))
        peak, kept, loss = figures[system]
        print(f"{model:12} {system:6} {count:6.0f} MiB of weights: peak +{peak:.0f} MiB, "
              f"kept +{kept:.0f} MiB after {args.steps} steps (loss {loss:.5f})")
    ratio = figures["weft"][0] / figures["torch"][0]
    print(f"{model:12} peak of Weft / PyTorch eager: {ratio:.2f}")
