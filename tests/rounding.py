"""Bounds of rounding errors, and whether tests hold for any rounding of products.

    python tests/rounding.py --ulps 4 tests/test_kernels.py   # more arguments of pytest

runs tests with every matrix product of JAX off by up to so many units in the last
place, as other instructions, threads and libraries have it. The error of an entry
depends on its value alone, so equal products stay equal. Machines can be tried, too:
XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 (AVX2, AVX512), OPENBLAS_CORETYPE, taskset.

A tolerance of a test follows from a bound here, or stands beside its reason.
"""

import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def unit(dtype=np.float32):
    """The largest relative error of one operation, half the distance from 1 upwards."""
    return float(np.finfo(dtype).eps) / 2


def product(X, Z, dtype=np.float32):
    """The largest error of `X Z^T` in any order of sums, X and Z rounded to the dtype.

    Each of the d terms has the errors of two rounded factors, of a product and of at
    most d - 1 sums. Shape `(n, m)`.
    """
    X, Z = (np.abs(np.asarray(rows, np.float64)) for rows in (X, Z))
    return (X.shape[1] + 2) * unit(dtype) * (X @ Z.T)


def squared_distance(X, Z, dtype=np.float32):
    """The largest error of `||x||^2 + ||z||^2 - 2 x.z`, shape `(n, m)`.

    That of the three products, and of two sums of terms that are together at most
    `(||x|| + ||z||)^2`. It is absolute: nearby rows far from 0 lose all digits.
    """
    X, Z = (np.asarray(rows, np.float64) for rows in (X, Z))
    lengths = (np.linalg.norm(rows, axis=1) for rows in (X, Z))
    return (X.shape[1] + 4) * unit(dtype) * np.add.outer(*lengths) ** 2


def rbf(gamma, X, Z, dtype=np.float32):
    """The largest error of `exp(-gamma ||x - z||^2)`, shape `(n, m)`.

    The slope of `exp(-t)` is at most 1. Rounding gamma and the product with it moves t
    by `2 u t`, and `t exp(-t) < 1/2`; XLA's exp is right to 4 u.
    """
    return gamma * squared_distance(X, Z, dtype) + 5 * unit(dtype)


def mapped_rbf(gamma, X, Z, matrix, dtype=np.float32):
    """The largest error of a Gaussian kernel of products with a matrix.

    That of the kernel, and of rows that have moved: the slope of `exp(-gamma t^2)` is
    at most `sqrt(2 gamma / e)`.
    """
    ways = [
        np.linalg.norm(product(rows, np.transpose(matrix), dtype), axis=1)
        for rows in (X, Z)
    ]
    moved = np.sqrt(2 * gamma / np.e) * np.add.outer(*ways)
    return rbf(gamma, X @ matrix, Z @ matrix, dtype) + moved


def has_float16():
    """Whether XLA compiles it: not for processors without instructions for it."""
    try:
        jax.jit(lambda x: x + 1)(np.float16(1)).block_until_ready()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def perturbed(found, terms, ulps):
    """The products with each entry moved by up to `ulps` representable numbers.

    Those of one term are rounded alike everywhere, and those of integers not at all.
    """
    integer = jnp.int32 if found.dtype == jnp.float32 else jnp.int64
    bits = jax.lax.bitcast_convert_type(found, integer)
    # Low bits of a product with an odd number look random.
    mixed = jax.lax.shift_right_logical(bits * integer(0x5851F42D), integer(16))
    moved = bits + mixed % integer(2 * ulps + 1) - integer(ulps)
    # Not across 0, infinity or NaN. The sum is exact, and has the slope of the product.
    moved = jax.lax.bitcast_convert_type(moved, found.dtype) - found
    moves = (terms > 1) & (found != jnp.round(found)) & (jnp.abs(found) > 1e-30)
    moves &= jnp.isfinite(found)
    return found + jax.lax.stop_gradient(jnp.where(moves, moved, 0))


class Perturbing:
    """A plugin of pytest under which products are rounded otherwise."""

    def __init__(self, ulps):
        self.ulps = ulps

    def pytest_configure(self):
        for name in ("matmul", "dot"):
            setattr(jnp, name, self.rounded_otherwise(getattr(jnp, name)))

    def rounded_otherwise(self, plain):
        def product(left, right, **more):
            found = plain(left, right, **more)
            if found.dtype not in (jnp.float32, jnp.float64):
                return found
            nonzero = ((part != 0).astype(found.dtype) for part in (left, right))
            return perturbed(found, plain(*nonzero), self.ulps)

        return product


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ulps", type=int, default=4)
    given, arguments = parser.parse_known_args()
    sys.exit(pytest.main(["-p", "no:xdist", *arguments], [Perturbing(given.ulps)]))


if __name__ == "__main__":
    main()
