"""A contextual bandit: which of five arms to pull, by mean rewards and deviations.

    python examples/bandit.py

The mean reward of an arm is a smooth function of three numbers, the context, and never
below 0; only the reward of the arm that was pulled is seen, with noise. Every arm has a
`budgetjax.KRLST` with 60 support vectors, which says its mean reward and how sure it
is. Greedy pulls the arm with the highest mean; UCB adds two deviations; Thompson draws
each reward from its distribution. The regret of a round is what the best arm would have
given more. All rounds of a policy are one `jax.lax.scan`, compiled once.
"""

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import budgetjax as bj
from budgetjax.plots import COLORS, DASHES, STYLE

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
except ImportError as error:
    raise SystemExit(f'bandit: {error}; pip install ".[examples]"') from error

ARMS, FEATURES, BUMPS, NOISE = 5, 3, 4, 0.1
# What each policy makes of the means and deviations of all arms, and of noise.
POLICIES: dict[str, Callable[..., jax.Array]] = {
    "greedy": lambda mean, deviation, noise: mean,
    "Thompson": lambda mean, deviation, noise: mean + deviation * noise,
    "UCB": lambda mean, deviation, noise: mean + 2 * deviation,
}


def rewards(seed: jax.Array, rounds: int) -> tuple[jax.Array, jax.Array]:
    """Contexts, and the mean reward of every arm in each: sums of Gaussian bumps."""
    keys = jax.random.split(jax.random.key(seed), 3)
    contexts = jax.random.normal(keys[0], (rounds, FEATURES))
    centres = jax.random.normal(keys[1], (ARMS, BUMPS, FEATURES))
    heights = jnp.abs(jax.random.normal(keys[2], (ARMS, BUMPS)))
    away = contexts[:, None, None] - centres[None]
    bumps = jnp.exp(-jnp.sum(away**2, axis=-1) / 2)
    return contexts, jnp.sum(heights[None] * bumps, axis=-1)


def initial(budget: int) -> Any:
    """The arms, which know nothing of any context, stacked along the first axis."""

    def one(noise: jax.Array) -> bj.State:
        arm = bj.KRLST(noise=noise).init(
            bj.RBF(0.3), num_features=FEATURES, num_classes=None, budget=budget
        )
        # A reward far away from all contexts says what size rewards have, or the first
        # one would say so alone: an arm with a small one would never be tried again.
        return bj.step(arm, jnp.full(FEATURES, 100.0), 1.0)

    return jax.vmap(one)(jnp.full(ARMS, 0.05))


@functools.partial(jax.jit, static_argnums=(0, 2))
def regret(name: str, arms: Any, rounds: int, seed: jax.Array) -> jax.Array:
    """The regret of each round of a policy."""
    contexts, means = rewards(seed, rounds)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    noise = jax.random.normal(key, (rounds, ARMS + 1))

    def look(arm: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, variance = bj.predict(arm, x[None]), bj.variance(arm, x[None])
        return mean[0], jnp.sqrt(variance[0])

    def play(arms: Any, given: Any) -> tuple[Any, jax.Array]:
        x, mean, noise = given
        known, deviation = jax.vmap(look, (0, None))(arms, x)
        pulled = jnp.argmax(POLICIES[name](known, deviation, noise[:-1]))
        one = jax.tree.map(lambda leaf: leaf[pulled], arms)
        one = bj.step(one, x, mean[pulled] + NOISE * noise[-1])
        arms = jax.tree.map(lambda leaf, new: leaf.at[pulled].set(new), arms, one)
        return arms, jnp.max(mean) - mean[pulled]

    return jax.lax.scan(play, arms, (contexts, means, noise))[1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=2000, help="pulls of an arm")
    parser.add_argument("--budget", type=int, default=60, help="vectors per arm")
    parser.add_argument("--seeds", type=int, default=10, help="bandits to average over")
    parser.add_argument("--output", default="bandit.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    for name in ("rounds", "budget", "seeds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: must be at least 1")

    seeds, found = jnp.arange(options.seeds), {}
    for name in POLICIES:
        # In turn, as is best on a CPU; on an accelerator jax.vmap is quicker.
        play = functools.partial(regret, name, initial(options.budget), options.rounds)
        found[name] = np.cumsum(jax.lax.map(play, seeds), axis=1)
    blind = jax.vmap(lambda seed: rewards(seed, options.rounds)[1])(seeds)
    lost = np.asarray(jnp.max(blind, axis=2) - jnp.mean(blind, axis=2))
    found["at random"] = np.cumsum(lost, axis=1)

    print(f"regret after {options.rounds:,} rounds, {options.seeds} bandits\n")
    print(f"{'policy':<12}{'mean':>8}{'worst':>8}")
    for name, curves in found.items():
        print(f"{name:<12}{curves[:, -1].mean():>8.0f}{curves[:, -1].max():>8.0f}")

    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        rounds = np.arange(1, options.rounds + 1)
        names = list(POLICIES)
        for i, name in enumerate(names):
            color = COLORS[(5, 2, 0)[i]]
            mean = found[name].mean(axis=0)
            left.plot(rounds, mean, label=name, color=color, linestyle=DASHES[2 - i])
            jitter = np.linspace(-0.12, 0.12, options.seeds) + i
            right.plot(jitter, found[name][:, -1], "o", color=color, markersize=3.5)
        top = 1.15 * max(found[name].mean(axis=0)[-1] for name in names)
        blind = found["at random"].mean(axis=0)
        left.plot(rounds, blind, color="0.6", label="at random")
        left.set(xlabel="round", ylim=(0, top), xlim=(0, options.rounds))
        left.set_title(f"Regret so far, mean of {options.seeds} bandits")
        left.legend()
        left.grid(True)
        right.set_yscale("log")
        ticks = [20, 50, 100, 200, 500, 1000]
        right.set_yticks(ticks, map(str, ticks))
        right.minorticks_off()
        right.set_xticks(range(len(names)), names)
        right.set_xlim(-0.5, len(names) - 0.5)
        right.set_title("Regret in the end, of each")
        right.grid(True, axis="y")
        for panel in (left, right):
            panel.spines[["top", "right"]].set_visible(False)
        figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
