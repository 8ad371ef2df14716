"""What the operations of the language mean, in NumPy: the tests compare kernels with it."""

import numpy as np
from examples.imagepipe.fusion import gauss


def load(picture):
    return picture.astype(np.float64)


def brightness(picture, factor):
    return picture * factor


def grayscale(picture):
    luma = picture @ np.array([0.299, 0.587, 0.114])
    return np.repeat(luma[:, :, None], 3, axis=2)


def crop(picture, width, height, left, top):
    return picture[top:top + height, left:left + width]


def resize(picture, width, height):
    """Bilinear, half-pixel centres, edges repeated, no averaging when it gets smaller."""
    for axis, m in ((0, height), (1, width)):
        n = picture.shape[axis]
        place = (np.arange(m) + 0.5) * (n / m) - 0.5
        low = np.floor(place).astype(int)
        part = (place - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        first, second = np.maximum(low, 0), np.minimum(low + 1, n - 1)
        a, b = np.take(picture, first, axis), np.take(picture, second, axis)
        picture = a + (b - a) * part
    return picture


def blur(picture, sigma):
    """Gaussian, cut off at three times `sigma`, edges repeated."""
    weights = gauss(sigma)
    reach = len(weights) - 1
    for axis in (1, 0):
        n = picture.shape[axis]
        total = np.zeros_like(picture)
        for d in range(-reach, reach + 1):
            rows = np.clip(np.arange(n) + d, 0, n - 1)
            total += np.take(picture, rows, axis) * weights[abs(d)]
        picture = total
    return picture


def save(picture):
    return np.floor(np.clip(picture, 0, 255) + 0.5).astype(np.uint8)
