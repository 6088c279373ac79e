"""Where to merge two vectors of a Gaussian kernel, and what it loses.

The smaller vector `m` is given by `||a_m||^2`, its partner `n` by `||a_n||^2`, the pair
by `<a_m, a_n>` and `-log k(x_m, x_n)`: nothing else enters.

All partners are ranked by the loss at a guess, three Newton steps; the best one is then
placed by six more. `benchmarks/merging.py` holds this beside the alternatives. To rank
and place among 100 and 500 partners in a compiled loop takes 2.7 and 6.2 microseconds;
nine steps for all partners 3.7 and 10.2; golden section search 20 and 202. A lookup
table of the loss, bilinear, takes 7.4 and 8.4, at best 3.1 and 4.3, and serves one
column of equal signs only: this serves every angle between rows of coefficients.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Steps of Newton's method that rank the partners, and those that follow for the best.
RANKING_STEPS = 3
FINAL_STEPS = 6


def guess(
    m_length: Float[Array, "*m"],
    n_lengths: Float[Array, "*n"],
    products: Float[Array, "*n"],
    decay: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    """About the best `h` of merging `m` with each partner, to rank them by their loss.

    Newton's method as in `position`, unguarded: for pairs at an acute angle it
    descends to the root from `x = 1`, and others are taken for orthogonal. Three steps
    are exact to 1e-10 of the objective where kappa > 1/e, and to 1e-3 about
    kappa = e^-2, where a merge loses most. Any `h` has a loss that can be had, so a
    poor guess ranks a partner too low, never too high. float64 places every partner.
    """
    r, c = _relative(m_length, n_lengths, products)
    if decay.dtype == jnp.float64:
        steps = RANKING_STEPS + FINAL_STEPS
        return _place(r, c, decay, _safeguarded(r, c, decay, jnp.ones_like(r), steps))
    x = jnp.ones_like(r)
    for _ in range(RANKING_STEPS):
        x = jnp.clip(_newton(r, jnp.maximum(c, 0), decay, x)[0], 0, 1)
    return (1 - x) / 2


def position(
    m_length: Float[Array, "*m"],
    n_length: Float[Array, "*n"],
    product: Float[Array, "*n"],
    decay: Float[Array, "*n"],
    start: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    r"""The `h` in `[0, 1/2]` at which merging `m` with a partner loses least.

    With `p = kappa^((1-h)^2)` and `q = kappa^(h^2)` the objective is
    `g(h) = ||a_m||^2 p^2 + 2 <a_m, a_n> p q + ||a_n||^2 q^2`. Since `m` is the smaller,
    `g(h) - g(1-h) = (||a_m||^2 - ||a_n||^2) (p^2 - q^2) >= 0` on `[0, 1/2]`, so the
    global maximum lies there, and it is the only local one there. In `x = 1 - 2h` and
    `rho = p / q = kappa^x`, `g'(h) = 0` reads

      `x = (r - rho^2) / (r + 2 c rho + rho^2)`,

    with `r = ||a_n||^2 / ||a_m||^2` and `c = <a_m, a_n> / ||a_m||^2`: for equal signs
    the mean-field equation `x = tanh((log(r)/2 + x log(1/kappa)) / 2)`. Newton's method
    descends to the root from above; a step that leaves the bracket becomes a bisection.
    After a guess of three steps, six more give the objective to 3e-10 for every kappa,
    length and angle.

    Args:
      m_length: `||a_m||^2`.
      n_length: `||a_n||^2` of the partner, at least as large.
      product: `<a_m, a_n>`.
      decay: `-log k(x_m, x_n)`.
      start: where to start, of `guess`.
    """
    r, c = _relative(m_length, n_length, product)
    x = jnp.where(c < 0, 1, 1 - 2 * start)
    return _place(r, c, decay, _safeguarded(r, c, decay, x, FINAL_STEPS))


def _place(r, c, decay, x):
    """`h = rho (rho + c) / (r + 2 c rho + rho^2)`: it holds what `1 - x` has lost."""
    rho = jnp.exp(-decay * x)
    denominator = jnp.maximum(r + rho * (2 * c + rho), jnp.finfo(r.dtype).tiny)
    return jnp.clip(rho * (rho + c) / denominator, 0, 0.5)


def _relative(
    m_length: Float[Array, "*m"],
    n_lengths: Float[Array, "*n"],
    products: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """`r` and `c` of `position`, bounded so that their products are finite.

    `m` is the smaller, so `r >= 1`. A free slot, of length 0, may have any.
    """
    limits = jnp.finfo(n_lengths.dtype)
    largest = float(limits.max) ** 0.5 / 16
    inverse = 1 / jnp.maximum(m_length, limits.tiny)
    r = jnp.clip(n_lengths * inverse, 1, largest)
    return r, jnp.clip(products * inverse, -(largest**0.5), largest**0.5)


def _newton(r, c, decay, x):
    """One step of Newton's method, and whether `x` was at or above the root.

    With one division and one exponential: each is a loop of its own when compiled.
    """
    rho = jnp.exp(-decay * x)
    denominator = r + rho * (2 * c + rho)
    gap = x * denominator - (r - rho * rho)
    growth = 2 * decay * rho * (2 * r * rho + c * (rho * rho + r))
    slope = denominator * denominator - growth
    return x - denominator * gap / slope, gap >= 0


def _safeguarded(r, c, decay, x, steps):
    """Newton's method kept in a shrinking bracket of the root.

    At the root the sign of the gap is a rounding, and a compiler that computes the gap
    twice may round it in two ways: a step that leaves the bracket by so little is no
    reason for a bisection, which would lose the root.
    """
    slack = 16 * float(jnp.finfo(x.dtype).eps)

    def narrower(_, bracket):
        x, low, high = bracket
        step, above = _newton(r, c, decay, x)
        high = jnp.where(above, x, high)
        low = jnp.where(above, low, x)
        inside = (step >= low - slack) & (step <= high + slack)
        return jnp.where(inside, step, (low + high) / 2), low, high

    # A loop, and not steps written out: a compiler makes a few kernels of each step.
    bracket = x, jnp.zeros_like(x), jnp.ones_like(x)
    x, _, _ = jax.lax.fori_loop(0, steps, narrower, bracket)
    return x


def loss(
    m_length: Float[Array, "*m"],
    n_lengths: Float[Array, "*n"],
    products: Float[Array, "*n"],
    decay: Float[Array, "*n"],
    h: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    r"""The squared norm that merging at `h` loses of the two terms.

    `||a_m||^2 + ||a_n||^2 + 2 <a_m, a_n> kappa - ||a_z||^2`, summed term by term as
    `||a_m||^2 (1 - p^2) + ||a_n||^2 (1 - q^2) + 2 <a_m, a_n> (kappa - p q)`: the loss
    is at most `||a_m||^2`, and would drown in the rounding of a larger `||a_n||^2`.
    For the same reason `1 - e^(-2t)` is `tanh(t) (1 + e^(-2t))`.
    """
    p = jnp.exp(-decay * (1 - h) ** 2)
    q = jnp.exp(-decay * h**2)
    other = jnp.tanh(decay * h**2) * (1 + q * q)
    cross = jnp.tanh(decay * h * (1 - h)) * (jnp.exp(-decay) + p * q)
    return m_length * (1 - p * p) + n_lengths * other - 2 * products * cross
