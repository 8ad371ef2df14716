"""The UCI handwritten digits: 1,797 images of 8 x 8 pixels, which scikit-learn ships.

The first 1,500 train the network; the last 297 were written by other hands and test it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.errors import LibraryNotFoundError

TRAIN = 1500
BATCH = 50
STEPS = TRAIN // BATCH  # an epoch

Array = np.ndarray[Any, Any]


class Digits(NamedTuple):
    """Images ``float32[n, 8, 8]`` from 0 to 1 and labels ``int64[n]``."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def load() -> Digits:
    """Return the images in their split.

    Raises
    ------
    LibraryNotFoundError
        If scikit-learn is not installed; it names the command that brings it.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise LibraryNotFoundError(
            "weft demo", found="no scikit-learn, which ships the images",
            expected="the demo extra", hint="pip install 'weft[demo]'",
        ) from None
    bunch = load_digits()
    images = (bunch.images / 16).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    return Digits(images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])


def baseline(digits: Digits) -> float:
    """Return the accuracy of 3-nearest-neighbours on the same split."""
    from sklearn.neighbors import KNeighborsClassifier

    flat = digits.train_images.reshape(TRAIN, -1)
    model = KNeighborsClassifier(3).fit(flat, digits.train_labels)
    tests = digits.test_images.reshape(len(digits.test_images), -1)
    return float(model.score(tests, digits.test_labels))


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Return each image moved by up to one pixel each way, zeros coming in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, len(images), 1, 1))
    span = np.arange(8)
    which = np.arange(len(images))[:, None, None]
    moved: Array = padded[which, rows + span[:, None], columns + span]
    return moved


def batches(digits: Digits, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Yield one epoch of augmented batches, ``float32[50, 1, 8, 8]`` and ``int64[50]``."""
    order = rng.permutation(TRAIN)
    for start in range(0, TRAIN, BATCH):
        chosen = order[start : start + BATCH]
        yield shifted(digits.train_images[chosen], rng)[:, None], digits.train_labels[chosen]
