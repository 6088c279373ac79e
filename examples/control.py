"""An arm with two joints learns its own dynamics while it moves, and picks up a load.

    python examples/control.py

Weak springs pull the joints to a path. A `budgetjax.KRLST` of two outputs adds the
torques that the motion needs, which it learns in every hundredth of a second from the
torques and the accelerations that they gave. Half way the arm picks up a load of one
kilogram, as heavy as each link, and only a learner that forgets follows. Where the arm
goes depends on what was learned, and what is learned on where the arm goes: arm,
controller and learner are one `jax.lax.scan`.
"""

import argparse
from collections.abc import Sequence
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
    raise SystemExit(f'control: {error}; pip install ".[examples]"') from error

# In seconds, metres and kilograms. The mass of a link is at its end, as the load is.
STEP, LENGTH, MASS, LOAD, GRAVITY, FRICTION = 0.01, 0.5, 1.0, 1.0, 9.81, 0.3
# Of the springs and dampers: accelerations per radian, and per radian per second.
STIFFNESS, DAMPING = 25.0, 10.0
# The inertia that they are made for.
INERTIA = 3 * MASS * LENGTH**2
# The units of angles, velocities and accelerations, and of torques.
UNITS, TORQUE = np.repeat([1.0, 3.0, 10.0], 2), 10.0
SHAKE = 0.05
FORGETTING = 0.001


def path(t: jax.Array) -> jax.Array:
    """The angles that the joints should have; they never repeat."""
    shoulder = 0.6 * jnp.sin(1.7 * t) + 0.3 * jnp.sin(2.9 * t)
    elbow = 1.0 + 0.6 * jnp.sin(2.3 * t) + 0.3 * jnp.cos(1.3 * t)
    return jnp.stack([shoulder, elbow])


speed = jax.jacfwd(path)
acceleration = jax.jacfwd(speed)


def end_of_arm(q: jax.Array) -> jax.Array:
    angles = jnp.cumsum(q)
    return LENGTH * jnp.array([jnp.sum(jnp.cos(angles)), jnp.sum(jnp.sin(angles))])


def accelerate(
    q: jax.Array, v: jax.Array, torque: jax.Array, load: jax.Array
) -> jax.Array:
    """The accelerations that torques give: Newton's second law for the two links."""
    near, far = MASS * LENGTH**2, (MASS + load) * LENGTH**2
    both = far * (1 + jnp.cos(q[1]))
    inertia = jnp.array([[near + 2 * both, both], [both, far]])
    turning = far * jnp.sin(q[1])
    turned = jnp.array([-(2 * v[0] + v[1]) * v[1] * turning, v[0] ** 2 * turning])
    lower = far * jnp.cos(q[0] + q[1])
    weight = jnp.array([(near + far) * jnp.cos(q[0]) + lower, lower])
    rest = turned + weight * GRAVITY / LENGTH + FRICTION * jnp.tanh(10 * v)
    return jnp.linalg.solve(inertia, torque - rest)


@jax.jit
def move(learner: bj.State | None, loads: jax.Array, shakes: jax.Array) -> jax.Array:
    """The distance of the end of the arm from its path after each step, in metres."""

    def one(carry: Any, given: Any) -> Any:
        (q, v, learner), (t, load, shake) = carry, given
        pull = STIFFNESS * (path(t) - q) + DAMPING * (speed(t) - v)
        torque = INERTIA * pull + shake
        if learner is not None:
            wanted = jnp.concatenate([q, v, acceleration(t) + pull]) / UNITS
            torque = torque + TORQUE * bj.predict(learner, wanted[None])[0]
        found = accelerate(q, v, torque, load)
        if learner is not None:
            row = jnp.concatenate([q, v, found]) / UNITS
            learner = bj.step(learner, row, torque / TORQUE)
        v = v + STEP * found
        q = q + STEP * v
        away = jnp.linalg.norm(end_of_arm(q) - end_of_arm(path(t + STEP)))
        return (q, v, learner), away

    t = STEP * jnp.arange(len(loads), dtype=float)
    start = path(t[0]), speed(t[0]), learner
    return jax.lax.scan(one, start, (t, loads, shakes))[1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seconds", type=int, default=60, help="seconds of motion")
    parser.add_argument("--budget", type=int, default=100, help="support vectors")
    parser.add_argument("--output", default="control.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    if options.seconds < 6:
        parser.error("--seconds: must be at least 6")

    steps = round(options.seconds / STEP)
    t, middle = STEP * np.arange(steps), steps // 2
    loads = jnp.where(jnp.arange(steps) < middle, 0.0, LOAD)
    shakes = SHAKE * jax.random.normal(jax.random.key(0), (steps, 2))

    def learner(forgetting: float) -> bj.State:
        return bj.KRLST(noise=0.001, forgetting=forgetting).init(
            bj.RBF(0.2),
            num_features=6,
            num_classes=None,
            num_outputs=2,
            budget=options.budget,
        )

    found = {
        "springs alone": move(None, loads, shakes),
        "forgetting=0": move(learner(0), loads, shakes),
        f"forgetting={FORGETTING:g}": move(learner(FORGETTING), loads, shakes),
    }
    away = {name: 1000 * np.asarray(each) for name, each in found.items()}
    first, after = slice(0, middle), slice(middle, min(steps, middle + middle // 3))
    parts = {
        "before the load": first,
        "just after": after,
        "later": slice(after.stop, steps),
    }
    print("root mean squared distance of the end of the arm from its path, in mm\n")
    print(f"{'':<18}" + "".join(f"{name:>17}" for name in parts))
    for name, each in away.items():
        cells = (np.sqrt(np.mean(each[part] ** 2)) for part in parts.values())
        print(f"{name:<18}" + "".join(f"{cell:>17.1f}" for cell in cells))

    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        # The largest distance in every half second.
        size = round(0.5 / STEP)
        ends = t[size - 1 :: size]
        for i, (name, each) in enumerate(away.items()):
            largest = each[: len(ends) * size].reshape(-1, size).max(axis=1)
            color = ("0.6", COLORS[5], COLORS[0])[i]
            axes.plot(ends, largest, label=name, color=color, linestyle=DASHES[2 - i])
        axes.axvline(STEP * middle, color="0.3", linewidth=1)
        axes.annotate(
            " it picks up a load",
            (STEP * middle, 0.98),
            xycoords=axes.get_xaxis_transform(),
            va="top",
        )
        axes.set_yscale("log")
        axes.set(xlabel="seconds", xlim=(0, options.seconds), ylim=(None, 4000))
        axes.set_title("Largest distance from the path in every half second (mm)")
        figure.legend(loc="outside lower center", ncols=3)
        axes.grid(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
