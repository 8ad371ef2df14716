"""Attention in one pass: keys and values go by in tiles, the softmax is corrected on the way.

Ref: T. Dao et al., "FlashAttention", 2022; the online softmax is M. Milakov's and
N. Gimelshein's, 2018.
"""

import math

import numpy as np

import weft
from weft import gpu

WIDTH = 16  # of a query, a key and a value
TILE = 32  # queries of a block, and keys that it looks at together


@weft.kernel
def attend(q, k, v, scale, causal, out):
    keys = gpu.shared.array((TILE, WIDTH), weft.float32)
    values = gpu.shared.array((TILE, WIDTH), weft.float32)
    query = gpu.local.array(WIDTH, weft.float32)
    mixed = gpu.local.array(WIDTH, weft.float32)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    for c in range(WIDTH):
        query[c] = q[i, c] * scale if i < q.shape[0] else 0
        mixed[c] = 0
    largest, total = weft.float32(-math.inf), weft.float32(0)

    for start in range(0, k.shape[0], TILE):
        if start + t < k.shape[0]:
            for c in range(WIDTH):
                keys[t, c] = k[start + t, c]
                values[t, c] = v[start + t, c]
        gpu.syncthreads()
        for other in range(min(TILE, k.shape[0] - start)):
            if causal and start + other > i:
                continue
            score = weft.float32(0)
            for c in range(WIDTH):
                score += query[c] * keys[other, c]
            new = max(largest, score)
            old_weight = math.exp(largest - new)  # what was added before counts less
            weight = math.exp(score - new)
            total = total * old_weight + weight
            for c in range(WIDTH):
                mixed[c] = mixed[c] * old_weight + weight * values[other, c]
            largest = new
        gpu.syncthreads()

    if i < q.shape[0]:
        for c in range(WIDTH):
            out[i, c] = mixed[c] / total


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    out = np.zeros_like(q)
    scale = np.float32(1 / math.sqrt(WIDTH))
    attend[weft.cdiv(len(q), TILE), TILE](q, k, v, scale, causal, out)
    return out


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    scores = q @ k.T / math.sqrt(WIDTH)
    if causal:
        scores[np.triu(np.ones(scores.shape, bool), 1)] = -np.inf
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v


def check(n: int = 301) -> str:
    q, k, v = np.random.default_rng(n).standard_normal((3, n, WIDTH)).astype(np.float32)
    for causal in (False, True):
        expected = reference(q.astype(np.float64), k, v, causal)
        np.testing.assert_allclose(attention(q, k, v, causal), expected, rtol=1e-4, atol=1e-5)
    return f"{n} queries, with and without what comes later"


def sides(n: int = 301):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    q, k, v = np.random.default_rng(n).standard_normal((3, n, WIDTH)).astype(np.float32)
    return lambda: attention(q, k, v, True), lambda: reference(q, k, v, True)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
