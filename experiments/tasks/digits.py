"""Images of digits as tokens: 8 by 8 pixels of 17 shades, in raster order.

An image is the id of its class, 17 for a 0 to 26 for a 9, then the shades of its 64
pixels, 0 to 16, from the upper left one on. A prompt is a class. The images are those
of scikit-learn, a part of "Optical Recognition of Handwritten Digits" (Alpaydin &
Kaynak 1998, https://doi.org/10.24432/C50P49, CC BY 4.0). Axes: N images.
"""

from typing import NamedTuple

import numpy as np

SIDE, SHADES, CLASSES = 8, 17, 10
PIXELS = SIDE * SIDE
HELD_OUT = 297  # the last images, which other people wrote than the first
SHIFTS = (-1, 0, 1)  # columns by which an image to learn from is moved


class Images(NamedTuple):
    """Images with their classes.

    Attributes:
        shades: [N, SIDE, SIDE] int, 0 is paper and 16 is ink.
        digits: [N] int, 0 to 9.
    """

    shades: np.ndarray
    digits: np.ndarray


def prompt(digit: int) -> list[int]:
    """Returns the ids that the image of a digit begins with."""
    return [SHADES + digit]


def load() -> dict[str, Images]:
    """Returns the images "train" and "held_out".

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the images are scikit-learn's: pip install '.[images]'"
        ) from None
    read = load_digits()
    whole = Images(read.images.astype(np.int32), read.target.astype(np.int32))
    first, last = (
        Images(*(leaf[part] for leaf in whole))
        for part in (slice(None, -HELD_OUT), slice(-HELD_OUT, None))
    )
    return {"train": first, "held_out": last}


def shift(images: Images) -> Images:
    """Returns the images moved by each of SHIFTS; the pixels that enter from the side
    are paper."""
    wide = np.pad(images.shades, ((0, 0), (0, 0), (1, 1)))
    moved = [wide[:, :, 1 - by : 1 - by + SIDE] for by in SHIFTS]
    return Images(np.concatenate(moved), np.tile(images.digits, len(SHIFTS)))


def documents(images: Images) -> list[list[int]]:
    """Returns the ids of each image, its class first."""
    rows = images.shades.reshape(len(images.digits), PIXELS)
    pairs = zip(images.digits, rows, strict=True)
    return [[*prompt(int(digit)), *row.tolist()] for digit, row in pairs]
