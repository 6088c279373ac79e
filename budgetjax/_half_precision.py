"""Arrays of float16 times a power of two.

A learned metric of codes is rounded to them, since its steps are coarser than their 11
bits, and files hold what they hold exactly in half of the bytes.
"""

import numpy as np
from jaxtyping import Float

# Smaller arrays are not worth a second dtype.
FEWEST = 64


def split(array: np.ndarray) -> tuple[Float[np.ndarray, "..."], int]:
    """The nearest float16 array, and the exponent of the power that it is divided by.

    The largest number is then below 1, so none overflows.
    """
    exponent = int(np.frexp(np.max(np.abs(array), initial=0))[1])
    return np.ldexp(array, -exponent).astype(np.float16), exponent


def join(half: Float[np.ndarray, "..."], exponent: int, dtype: np.dtype) -> np.ndarray:
    """The array of these parts."""
    return np.ldexp(half.astype(dtype), exponent)


def round_array(array: np.ndarray) -> np.ndarray:
    """The nearest array of float16 times a power; itself if not all are finite."""
    if not np.all(np.isfinite(array)):
        return array
    return join(*split(array), array.dtype)


def holds(array: np.ndarray) -> bool:
    """Whether such numbers hold an array, of many, exactly."""
    if array.dtype not in (np.float32, np.float64) or array.size < FEWEST:
        return False
    return bool(
        np.all(np.isfinite(array)) and np.array_equal(round_array(array), array)
    )
