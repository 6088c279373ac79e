"""What a child process runs that is killed: a slow stream with checkpoints."""

import contextlib
import os
import time

import jax
import numpy as np

ROWS, BATCHES = 32, 250
# Where a child is, in memory that it shares.
STARTING, LEARNING, WRITING = 0, 1, 2


def stream(pause):
    """Rows in batches that do not fit those that are learned."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS * BATCHES, 2)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
    for start in range(0, len(X), 27):
        time.sleep(pause)
        yield X[start : start + 27], y[start : start + 27]


def learn(path, cache, pause=0.0, told=None):
    """The whole stream, from the checkpoint on, if there is one.

    Where it can tell of it, it writes after every batch, and slowly.
    """
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    import budgetjax as bj
    from budgetjax.saving import model_files

    if told is not None:
        write, fsync = model_files.write, os.fsync

        def telling(*given):
            told.value = WRITING
            write(*given)
            told.value = LEARNING

        def slow(file):
            time.sleep(0.002)
            fsync(file)

        model_files.write, os.fsync = telling, slow
    state = bj.Perceptron().init(
        bj.RBF(0.5), num_features=2, budget=10, maintenance=bj.RemoveRandom(seed=3)
    )
    return bj.fit_stream(
        state,
        stream(pause),
        classes=["no", "yes"],
        encode=bj.encoding.fit(next(stream(0))[0], 0),
        batch_rows=ROWS,
        checkpoint=path,
        every=100 if told is None else 1,
    )


def run(path, cache, pause=0.0, told=None):
    """In a child process: its messages go nowhere."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        learn(path, cache, pause, told)
