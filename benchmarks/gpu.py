"""The gain of an accelerator: single streams, many models, matrix products.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --quick

Streams are timed by block length, and once more with the loops of XLA captured in
command buffers. Sweeps are timed by the number of models. Functions built on matrix
products are compared to the rate of a plain product, also PyTorch's if it is installed,
and to scikit-learn on the same machine's processor. Every figure is a median,
compilation excluded.

Every result is written at once to `results/gpu-<device>.csv`, so a stopped run
continues where it was. No case begins after `--minutes`. With `--quick` all cases are
small, for a trial on a CPU.
"""

import argparse
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import runner
import timing
from models import empty
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from tasks import speed

import budgetjax as bj

# XLA captures the body of a loop once and replays it without the processor's help.
CAPTURED = "--xla_gpu_enable_command_buffer=+WHILE"
STREAMS = ("ijcnn1", "covtype", "mnist")
BLOCKS = (64, 256, 1024, 4096)
MODELS = (64, 256, 1024)
# Of the 64 models of a sweep.
GAMMAS, REGULARIZATIONS = 2.0 ** np.arange(-4, 4), 10.0 ** np.linspace(-6, -2.5, 8)
LIMITS = ("product", "product, highest precision", "product, PyTorch")


@functools.cache
def stream(name: str, rows: int):
    X, y, _, _, gamma, regularization = speed.load(name, rows)
    return jnp.asarray(X), y, gamma, regularization


def streams(quick: bool) -> Iterator[runner.Case]:
    """Microseconds per example of one stream, by block length."""

    def measured(name, which, budget, block) -> dict[str, float]:
        X, y, gamma, regularization = stream(name, rows)
        n, d = X.shape
        state = speed.empty(which.lower(), gamma, regularization, d, budget)
        learn = timing.learning(state, X, y, block)
        final, _ = learn()
        predict = functools.partial(bj.decision_function, final, X)
        seconds = timing.medians({"learn": learn, "predict": predict}, 3)
        return {
            "updates %": 100 * int(final.num_updates) / n,
            **{f"{key} us": value / n * 1e6 for key, value in seconds.items()},
        }

    rows = 1000 if quick else 20_000
    captured = CAPTURED in os.environ.get("XLA_FLAGS", "")
    for name in STREAMS[:1] if quick else STREAMS:
        for budget in (20,) if quick else (100, 500):
            for which in ("oldest", "merge", "AROW"):
                every = which == "merge" and budget < 500 and not captured
                for block in BLOCKS if every else (256,):
                    given = name, which, budget, block
                    key: dict[str, Any] = {"data": name, "learner": which}
                    key |= {"B": budget, "block": block}
                    key |= {"part": "stream", "captured": captured}
                    yield runner.Case(key, functools.partial(measured, *given))


def sweeps(quick: bool) -> Iterator[runner.Case]:
    """Nanoseconds per model and example of many models on one stream."""

    def measured(which, models) -> dict[str, float]:
        X, y, *_ = stream("ijcnn1", rows)
        grid = bj.grid(
            gamma=GAMMAS,
            regularization=REGULARIZATIONS,
            copy=range(models // 64),
        )
        states = grid.init(
            lambda gamma, regularization, copy: speed.empty(
                which, gamma, regularization, X.shape[1], 20 if quick else 100
            )
        )
        run = functools.partial(bj.sweep, states, X, y)
        return {"ns": timing.median(run, 3) / (len(y) * models) * 1e9}

    rows = 500 if quick else 20_000
    for which in ("smallest", "merge"):
        for models in MODELS[:1] if quick else MODELS:
            key = {"part": "sweep", "learner": which, "models": models}
            yield runner.Case(key, functools.partial(measured, which, models))


def limits(quick: bool) -> Iterator[runner.Case]:
    """The rate of a product of two square matrices, in 10^12 operations a second."""
    size = 512 if quick else 8192

    def rate(multiply: Callable[[], Any]) -> dict[str, float]:
        spent = timing.median(multiply, 5)
        return {"seconds": spent, "10^12/s": 2 * size**3 / spent / 1e12}

    def of_jax(precision) -> dict[str, float]:
        A = jax.random.normal(jax.random.key(0), (size, size))
        multiply = jax.jit(functools.partial(jnp.matmul, precision=precision))
        return rate(lambda: multiply(A, A))

    def of_torch() -> dict[str, float]:
        import torch  # pyright: ignore[reportMissingImports]

        device = "cuda" if torch.cuda.is_available() else "cpu"
        A = torch.randn(size, size, device=device)
        # Reading one number of the result waits for all of it.
        return rate(lambda: float((A @ A)[0, 0]))

    calls = [lambda: of_jax(None), lambda: of_jax("highest"), of_torch]
    for name, call in zip(LIMITS, calls, strict=True):
        if "PyTorch" not in name or find_spec("torch"):
            yield runner.Case({"part": "product", "what": name}, call)


def products(quick: bool) -> Iterator[runner.Case]:
    """Seconds of functions built on matrix products, and scikit-learn's on the CPU."""
    rows, budget = (1000, 20) if quick else (20_000, 500)

    def figures(call, rival, operations=0.0) -> dict[str, float]:
        spent = timing.median(call, 3)
        found = {"seconds": spent}
        if operations:
            found["10^12/s"] = operations / spent / 1e12
        if rival is not None:
            start = time.perf_counter()
            rival()
            found["scikit-learn seconds"] = time.perf_counter() - start
        return found

    def state(X, y, gamma, regularization):
        start = speed.empty("merge", gamma, regularization, X.shape[1], budget)
        return bj.run(start, X, y)[0]

    def scores(model, X, rival) -> dict[str, float]:
        call = functools.partial(bj.decision_function, model, X)
        return figures(call, rival, 2 * X.size * budget)

    def nystroem(gamma):
        return Nystroem(gamma=gamma, n_components=budget, random_state=0)

    def predictions(X, y, gamma, regularization):
        model = state(X, y, gamma, regularization)
        vectors, host = np.asarray(model.expansion.vectors[:budget]), np.asarray(X)
        ones = np.ones(budget, np.float32)
        return scores(model, X, lambda: rbf_kernel(host, vectors, gamma) @ ones)

    def fourier(X, y, gamma, _):
        model = empty(bj.Fourier(), X, 2 * budget, gamma)
        sampler = RBFSampler(gamma=gamma, n_components=2 * budget, random_state=0)
        sampler.fit(host := np.asarray(X))
        # A pair of features, a sine and a cosine, takes one product.
        return scores(model, X, lambda: sampler.transform(host))

    def nystrom(X, y, gamma, _):
        model = empty(bj.Nystrom(), X, budget, gamma, vectors=X[:budget])
        peer = nystroem(gamma).fit(host := np.asarray(X))
        return scores(model, X, lambda: peer.transform(host))

    def refit(X, y, gamma, regularization, **options):
        model = state(X, y, gamma, regularization)
        peer = make_pipeline(nystroem(gamma), LinearSVC(C=10.0, fit_intercept=False))
        return figures(
            lambda: bj.refit(model, X, y, **options).expansion,
            None if options else lambda: peer.fit(np.asarray(X), y),
        )

    def metric(X, y, gamma, regularization):
        return refit(X, y, gamma, regularization, learn_metric=True, epochs=2)

    def solver(make, X, y, gamma, _):
        chosen, steps = make(bj.RBF(gamma), tolerance=None), 20 if quick else 500

        def call():
            return bj.solve(chosen, X, y, max_steps=steps).history

        return figures(call, None, 2 * float(call().work[-1]) * X.shape[1])

    calls = {
        "predictions": predictions,
        "Fourier features": fourier,
        "Nystrom features": nystrom,
        "refit": refit,
        "metric, 2 passes": metric,
        "SMO, kernel rows": functools.partial(solver, bj.SMO),
        "SBP, kernel rows": functools.partial(
            solver, functools.partial(bj.SBP, slack=0.1)
        ),
    }
    for name in STREAMS[:1] if quick else ("covtype", "mnist"):
        for what, call in calls.items():
            key = {"part": "product", "what": what, "data": name, "B": budget}
            yield runner.Case(
                key, lambda call=call, name=name: call(*stream(name, rows))
            )


def main():
    parser = argparse.ArgumentParser(description="The gain of an accelerator")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--streams", action="store_true", help="single streams only")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    deadline = time.monotonic() + 60 * given.minutes
    device = jax.devices()[0].device_kind.lower().replace(" ", "-")
    name = f"gpu-{device}{'-quick' if given.quick else ''}.csv"
    output = given.output or runner.RESULTS / name
    cases = [] if given.streams else [*limits(given.quick), *sweeps(given.quick)]
    cases += [] if given.streams else products(given.quick)
    runner.run([*cases, *streams(given.quick)], output, deadline)
    if jax.default_backend() == "gpu" and not given.streams:
        # XLA reads its flags once.
        flags = f"{os.environ.get('XLA_FLAGS', '')} {CAPTURED}"
        left = max(0.0, deadline - time.monotonic()) / 60
        command = [sys.executable, __file__, "--streams", "--output", str(output)]
        command += ["--minutes", str(left), *(["--quick"] if given.quick else [])]
        # In addition to the memory that this process keeps.
        more = {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        subprocess.run(command, check=True, env=os.environ | more)
    rows = runner.read(output)
    for part in dict.fromkeys(row["part"] for row in rows):
        runner.show([row for row in rows if row["part"] == part])


if __name__ == "__main__":
    main()
