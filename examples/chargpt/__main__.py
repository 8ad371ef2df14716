"""Train for a minute, sample 200 characters, compare the time of sampling with PyTorch's.

Run it from the root of the repository: ``python -m examples.chargpt``.
"""

from __future__ import annotations

import argparse
import time
from pydoc_data.topics import topics

import numpy as np
from examples.chargpt.model import CONTEXT, CharGPT, sampler

import weft
from weft import optim
from weft.nn import functional as F

LENGTH = 200


def text() -> str:
    """Return the help pages of Python's ``help()``."""
    return "\n".join(topics[name] for name in sorted(topics))


def train(model: CharGPT, data: np.ndarray, steps: int) -> None:
    """Fit the model to random pieces of the text, 32 at a time."""
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(0)

    @weft.jit
    def step(tokens: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    for i in range(steps):
        starts = rng.integers(0, len(data) - CONTEXT - 1, 32)
        loss = step(np.stack([data[s : s + CONTEXT + 1] for s in starts]))
        if i % 100 == 0 or i == steps - 1:
            print(f"step {i:4d}: loss {loss.item():.2f}")


def sample(model: CharGPT, prompt: np.ndarray, length: int, temperature: float) -> np.ndarray:
    """Return the prompt and what the model adds to it."""
    extend = sampler(model)
    tokens = weft.tensor(prompt[None])
    before = weft.compile_count()
    begin = time.perf_counter()
    for i in range(length):  # it gets warmer: another number and another size at each call
        tokens = extend(tokens, temperature * (0.5 + 0.5 * i / length))
    found = tokens.numpy()[0]
    print(f"{length} characters in {time.perf_counter() - begin:.2f} s, compiling included: "
          f"{weft.compile_count() - before} graphs ({extend.captures} captures)")
    begin = time.perf_counter()
    tokens = weft.tensor(prompt[None])
    for i in range(length):
        tokens = extend(tokens, temperature * (0.5 + 0.5 * i / length))
    tokens.numpy()
    print(f"and again, warm, in {time.perf_counter() - begin:.3f} s")
    return found


def main() -> None:
    """Train, sample, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.9)
    options = parser.parse_args()
    weft.manual_seed(0)
    content = text()
    characters = sorted(set(content))
    data = np.array([characters.index(c) for c in content[:200_000]])
    model = CharGPT(len(characters))
    train(model, data, options.steps)
    found = sample(model, data[:1], LENGTH, options.temperature)
    print("".join(characters[i] for i in found))
    try:
        from examples.chargpt.peer import seconds
    except ImportError:
        print("PyTorch is not installed: nothing to compare with")
        return
    print(f"PyTorch, eager, the same weights: {seconds(model, data[:1], LENGTH):.3f} s")


if __name__ == "__main__":
    main()
