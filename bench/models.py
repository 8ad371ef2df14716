"""Whole models beside PyTorch: GPT-2-small and ResNet-18, forward and training, ViT-B/16 forward.

    python bench/models.py [--threads 2] [--only gpt2,resnet18] [--seconds 4] [--no-compile]

Weights are random and shared; every system gets the same inputs in turns in one process. Results
are compared before anything is timed: logits to 1e-3 of their largest value, and after three
training steps the losses to 1e-3 and the parameters to 2e-3. Printed are median milliseconds of
PyTorch eager, torch.compile (it needs a C++ compiler) and Weft under `weft.jit`, and Weft's speed
over the better of the two (above 1 is faster). A second row of a forward pass is Weft with
`pack_weights`, timed in the same turns: weights that Weft owns keep the layout that products read,
which the first row makes at each call; the bits are compared with those of the first.
"""

import argparse
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "2")))
parser.add_argument("--only", default="", help="comma list of names")
parser.add_argument("--seconds", type=float, default=4, help="time for each system and model")
parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

import numpy as np  # noqa: E402 - the threads are set before

import weft  # noqa: E402
import weft.nn.functional as wf  # noqa: E402
import weft.optim  # noqa: E402

try:
    import torch
    import torch.nn.functional as tf
except ImportError:
    sys.exit("bench/models.py compares with PyTorch, which is not installed")
torch.set_num_threads(args.threads)

WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 12, 50257
rng = np.random.default_rng()


def normal(*shape, scale=0.02):
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def block_weights():
    """Return the parameters of twelve transformer layers."""
    out = {}
    for i in range(LAYERS):
        for n in "12":
            out[f"{i}.norm{n}"] = np.ones(WIDTH, np.float32)
            out[f"{i}.shift{n}"] = np.zeros(WIDTH, np.float32)
        for part, rows, columns in (("qkv", 1, 3), ("proj", 1, 1), ("up", 1, 4), ("down", 4, 1)):
            out[f"{i}.{part}"] = normal(rows * WIDTH, columns * WIDTH)
            out[f"{i}.{part}_bias"] = normal(columns * WIDTH)
    out["norm"], out["shift"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    return out


def blocks(f, p, x, causal):
    """Apply the layers to x of shape (batch, tokens, width); `f` is the library's functional."""
    batch, count = x.shape[:2]
    for i in range(LAYERS):
        h = f.layer_norm(x, (WIDTH,), p[f"{i}.norm1"], p[f"{i}.shift1"])
        qkv = h @ p[f"{i}.qkv"] + p[f"{i}.qkv_bias"]
        heads = qkv.reshape(batch, count, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        h = f.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=causal)
        h = h.permute(0, 2, 1, 3).reshape(batch, count, WIDTH)
        x = x + h @ p[f"{i}.proj"] + p[f"{i}.proj_bias"]
        h = f.layer_norm(x, (WIDTH,), p[f"{i}.norm2"], p[f"{i}.shift2"])
        h = f.gelu(h @ p[f"{i}.up"] + p[f"{i}.up_bias"], approximate="tanh")
        x = x + h @ p[f"{i}.down"] + p[f"{i}.down_bias"]
    return f.layer_norm(x, (WIDTH,), p["norm"], p["shift"])


def gpt2_weights():
    out = {"tokens": normal(VOCABULARY, WIDTH), "positions": normal(1024, WIDTH)}
    return out | block_weights()


def gpt2(f, p, ids):
    x = p["tokens"][ids] + p["positions"][: ids.shape[1]]
    return blocks(f, p, x, True) @ p["tokens"].transpose(0, 1)


def gpt2_loss(f, p, ids, targets):
    logits = gpt2(f, p, ids)
    return f.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def vit_weights():
    return {"patch": normal(WIDTH, 3, 16, 16), "patch_bias": normal(WIDTH), **block_weights(),
            "class": normal(1, 1, WIDTH), "positions": normal(1, 197, WIDTH),
            "head": normal(WIDTH, 1000), "head_bias": normal(1000)}  # fmt: skip


def vit(lib, f, p, images):
    x = f.conv2d(images, p["patch"], p["patch_bias"], stride=16)
    x = x.reshape(images.shape[0], WIDTH, 196).transpose(1, 2)
    first = p["class"].expand(images.shape[0], 1, WIDTH)
    x = lib.cat([first, x], 1) + p["positions"]
    return blocks(f, p, x, False)[:, 0] @ p["head"] + p["head_bias"]


def resnet_weights():
    out = {}

    def conv(name, outputs, inputs, size):
        out[name] = normal(outputs, inputs, size, size, scale=(2 / (inputs * size * size)) ** 0.5)
        out[name + ".scale"], out[name + ".shift"] = 1 + normal(outputs), normal(outputs)
        out[name + ".mean"], out[name + ".var"] = normal(outputs), 1 + abs(normal(outputs))

    conv("stem", 64, 3, 7)
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            conv(f"{stage}.{block}.1", outputs, inputs, 3)
            conv(f"{stage}.{block}.2", outputs, outputs, 3)
            if inputs != outputs:
                conv(f"{stage}.{block}.skip", outputs, inputs, 1)
            inputs = outputs
    out["head"], out["head_bias"] = normal(512, 1000), normal(1000)
    return out


def resnet(f, p, x, training=False):
    def conv(name, x, stride, padding):
        x = f.conv2d(x, p[name], stride=stride, padding=padding)
        return f.batch_norm(x, p[name + ".mean"], p[name + ".var"], p[name + ".scale"],
                            p[name + ".shift"], training)  # fmt: skip

    x = f.max_pool2d(f.relu(conv("stem", x, 2, 3)), 3, stride=2, padding=1)
    for stage in range(4):
        for block in range(2):
            name = f"{stage}.{block}"
            stride = 2 if stage and not block else 1
            skip = conv(name + ".skip", x, stride, 0) if stage and not block else x
            x = f.relu(conv(name + ".1", x, stride, 1))
            x = f.relu(conv(name + ".2", x, 1, 1) + skip)
    return x.mean((2, 3)) @ p["head"] + p["head_bias"]


def resnet_loss(f, p, x, targets):
    return f.cross_entropy(resnet(f, p, x, True), targets)


def turns(systems):
    """Time the callables in short turns; return the median seconds of each.

    Threads of OpenMP spin for a while after their work and would take a core from whoever comes
    next: each turn begins after a pause.
    """
    times = {name: [] for name in systems}
    end = time.perf_counter() + args.seconds * len(systems)
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, call in systems.items():
            time.sleep(0.15)
            for _ in range(4):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def show(title, medians):
    best = min(v for n, v in medians.items() if n not in ("weft", "packed"))
    columns = "  ".join(f"{n} {v * 1e3:8.1f} ms" for n, v in medians.items() if n != "packed")
    print(f"{title:28s} {columns}   weft x{best / medians['weft']:.2f}", flush=True)
    if "packed" in medians:
        title += ", packed"
        print(f"{title:28s} weft {medians['packed'] * 1e3:8.1f} ms   "
              f"weft x{best / medians['packed']:.2f}", flush=True)


LOGITS, LOSSES, PARAMETERS = 1e-3, 1e-3, 2e-3  # of the largest value of PyTorch's


def close(title, found, wanted, tolerance):
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    if not error <= tolerance:
        sys.exit(f"{title}: the results differ by {error:.1e}")


def inference(title, weights, ours, theirs, *inputs):
    arrays = weights()
    # Weights in memory of each system's own: what Weft shares with NumPy it cannot keep packed.
    p = {n: weft.tensor(a) for n, a in arrays.items()}
    q = {n: torch.tensor(a) for n, a in arrays.items()}
    xs = [weft.from_numpy(a) for a in inputs]
    ys = [torch.from_numpy(a) for a in inputs]
    model = weft.jit(lambda *x: ours(p, *x))
    start = time.perf_counter()
    found = model(*xs).realize()
    first = time.perf_counter() - start
    packed = weft.jit(lambda *x: ours(p, *x), pack_weights=True)
    if not np.array_equal(packed(*xs).numpy(), found.numpy()):
        sys.exit(f"{title}: other bits with packed weights")
    systems = {"eager": lambda: theirs(q, *ys)}
    with torch.no_grad():
        wanted = theirs(q, *ys).numpy()
        close(title, found.numpy(), wanted, LOGITS)
        if args.compile:
            compiled = torch.compile(lambda *y: theirs(q, *y))
            close(title, compiled(*ys).numpy(), wanted, LOGITS)
            systems["compile"] = lambda: compiled(*ys)
        systems["weft"] = lambda: model(*xs).realize()
        systems["packed"] = lambda: packed(*xs).realize()
        show(title, turns(systems))
    print(f"{'':28s} weft's first call {first:.2f} s, {packed.packed_bytes >> 20} MiB of panels")


def training(title, weights, model_loss, inputs, targets, checked):
    arrays = weights()
    names = [n for n in arrays if not n.endswith((".mean", ".var"))]  # the rest is learned
    p = {n: weft.tensor(a, requires_grad=n in names) for n, a in arrays.items()}
    ours = weft.optim.AdamW([p[n] for n in names], lr=1e-4)

    def weft_step(x, y):
        loss = model_loss(wf, p, x, y)
        ours.zero_grad()
        loss.backward()
        ours.step()
        return loss

    def torch_step(q, optimiser, loss_of, x, y):
        loss = loss_of(q, x, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    def peer(loss_of):
        q = {n: torch.from_numpy(a.copy()).requires_grad_(n in names) for n, a in arrays.items()}
        optimiser = torch.optim.AdamW([q[n] for n in names], lr=1e-4, fused=True)
        given = torch.from_numpy(inputs), torch.from_numpy(targets)
        return q, lambda: torch_step(q, optimiser, loss_of, *given)

    jitted = weft.jit(weft_step)
    given = weft.from_numpy(inputs), weft.from_numpy(targets)
    start = time.perf_counter()
    losses = [jitted(*given).item()]
    first = time.perf_counter() - start
    losses += [jitted(*given).item() for _ in range(2)]
    q, eager = peer(lambda q, x, y: model_loss(tf, q, x, y))
    wanted = [eager().item() for _ in range(3)]
    close(f"{title}, losses", np.array(losses), np.array(wanted), LOSSES)
    for n in checked:
        close(f"{title}, {n}", p[n].numpy(), q[n].detach().numpy(), PARAMETERS)
    systems = {"eager": eager}
    if args.compile:
        compiled_loss = torch.compile(lambda q, x, y: model_loss(tf, q, x, y))
        systems["compile"] = peer(compiled_loss)[1]
        systems["compile"]()
    systems["weft"] = lambda: jitted(*given).realize()
    show(title, turns(systems))
    print(f"{'':28s} weft's first call {first:.2f} s")


def tokens(batch, count):
    return rng.integers(0, VOCABULARY, (batch, count))


def images(batch):
    return normal(batch, 3, 224, 224, scale=1)


WORK = {
    "gpt2": lambda: inference(
        "GPT-2 small, 64 tokens", gpt2_weights, lambda p, x: gpt2(wf, p, x),
        lambda q, x: gpt2(tf, q, x), tokens(1, 64)),
    "gpt2-512": lambda: inference(
        "GPT-2 small, 512 tokens", gpt2_weights, lambda p, x: gpt2(wf, p, x),
        lambda q, x: gpt2(tf, q, x), tokens(1, 512)),
    "resnet18": lambda: inference(
        "ResNet-18, 1 image", resnet_weights, lambda p, x: resnet(wf, p, x),
        lambda q, x: resnet(tf, q, x), images(1)),
    "resnet18-8": lambda: inference(
        "ResNet-18, 8 images", resnet_weights, lambda p, x: resnet(wf, p, x),
        lambda q, x: resnet(tf, q, x), images(8)),
    "vit": lambda: inference(
        "ViT-B/16, 1 image", vit_weights, lambda p, x: vit(weft, wf, p, x),
        lambda q, x: vit(torch, tf, q, x), images(1)),
    "training": lambda: training(
        "GPT-2 small step, 2x64", gpt2_weights, gpt2_loss, tokens(2, 64), tokens(2, 64),
        ("tokens", "0.qkv", "11.down", "0.norm1")),
    "resnet18-training": lambda: training(
        "ResNet-18 step, 8 images", resnet_weights, resnet_loss, images(8),
        rng.integers(0, 1000, 8),
        ("stem", "0.0.1", "1.0.skip", "3.1.2.scale", "2.0.1.mean", "head")),
}  # fmt: skip

if __name__ == "__main__":
    chosen = [n for n in args.only.split(",") if n] or list(WORK)
    if unknown := set(chosen) - set(WORK):
        sys.exit(f"unknown {sorted(unknown)}; there are {', '.join(WORK)}")
    print(f"{args.threads} threads; medians; ratio to the better of eager and compile\n"
          f"checked before: logits to {LOGITS:g} of the largest; after three steps losses to "
          f"{LOSSES:g}, parameters to {PARAMETERS:g}")
    for name in chosen:
        WORK[name]()
