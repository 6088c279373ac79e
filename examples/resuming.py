"""Kills a run twice, and resumes it to the same model.

    python examples/resuming.py
    python examples/resuming.py --rows 5000000 --kills 5

A process learns from a stream and writes a checkpoint every few batches. It is killed
with SIGKILL, which no process can catch, as in a power failure. The same command then
starts it again, and it continues from the last checkpoint. At the end the model is
compared, bit for bit, with that of an undisturbed run.
"""

import argparse
import filecmp
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import budgetjax as bj
from budgetjax import datasets

try:
    import safetensors  # noqa: F401  (writes checkpoints)
except ImportError as error:
    raise SystemExit(f'resuming: {error}; pip install ".[stream]"') from error

BATCH_ROWS = 2000
EVERY = 5  # batches between checkpoints


def learn(folder: Path, checkpoint: Path | None = None) -> bj.StreamModel:
    """Makes one pass over the rows in a folder, from the checkpoint if there is one."""
    batches = bj.stream.npy(folder / "X.npy", folder / "y.npy")
    first, _ = next(iter(batches))
    state = bj.AROW().init(bj.RBF(gamma=8.0), num_features=2, budget=100)
    return bj.fit_stream(
        state,
        batches,
        encode=bj.encoding.fit(first, 0),
        batch_rows=BATCH_ROWS,
        checkpoint=checkpoint,
        every=EVERY,
    )


def rows_in(checkpoint: Path) -> int:
    """The number of rows in a checkpoint, which is complete at any time."""
    return bj.load(checkpoint).num_rows if checkpoint.exists() else 0


def start(folder: Path, checkpoint: Path) -> subprocess.Popen:
    """A process that learns."""
    command = [sys.executable, __file__, "--folder", folder, "--checkpoint", checkpoint]
    return subprocess.Popen(command)


def kill_midway(folder: Path, checkpoint: Path, until: int) -> bool:
    """Kills the process some time after the checkpoint has reached these rows.

    Returns False if the process ended before that.
    """
    process = start(folder, checkpoint)
    try:
        while process.poll() is None:
            if rows_in(checkpoint) >= until:
                time.sleep(random.uniform(0, 0.02))
                break
            time.sleep(0.05)
    finally:
        process.kill()
    return process.wait() < 0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="rows of the stream"
    )
    parser.add_argument(
        "--kills", type=int, default=2, help="kills before it may finish"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.folder:  # the process that is killed
        learn(options.folder, options.checkpoint)
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X, y = datasets.checkerboard(options.rows, seed=0)
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y)
        checkpoint = folder / "checkpoint.safetensors"
        for i in range(options.kills):
            wanted = options.rows * (i + 1) // (options.kills + 1)
            if not kill_midway(folder, checkpoint, wanted):
                raise SystemExit("done before it could be killed: give more --rows")
            print(
                f"killed; the checkpoint holds {rows_in(checkpoint):,} rows", flush=True
            )
        process = start(folder, checkpoint)
        if process.wait():
            raise SystemExit(process.returncode)
        resumed, undisturbed = bj.load(checkpoint), learn(folder)
        for name, model in (("resumed", resumed), ("undisturbed", undisturbed)):
            print(f"{name:<12} {model.num_rows:,} rows, error {model.error:.3%}")

        files = folder / "resumed.safetensors", folder / "undisturbed.safetensors"
        for file, model in zip(files, (resumed, undisturbed), strict=True):
            bj.save(file, model)
        if not filecmp.cmp(*files, shallow=False):
            raise SystemExit("the two models differ")
        size = os.path.getsize(files[0])
        print(f"The two models are equal, bit for bit, in files of {size:,} bytes.")


if __name__ == "__main__":
    main()
