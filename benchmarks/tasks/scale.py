"""Eight million deformed digits, learned from a file in one pass: mnist8m's task.

mnist8m is eight million deformed copies of mnist's 60,000 training digits, by Loosli,
Canu and Bottou (2007), "Training invariant support vector machines using selective
sampling". That file is not available, so a seeded generator deforms the digits here and
writes them as float32 to a `.npy` file (25 GB; 3.1 for a million), in random order. The
test rows are mnist's own 10,000, which are not deformed.

There are two classes: the round digits 3, 6, 8, 9 and 0 against the others. Each
learner has its own process: Pegasos with merging, and AROW, by `bj.fit_stream`; "refit,
once", where Pegasos on the first 8,192 rows chooses the support vectors, and `bj.refit`
takes these rows and the rest of the file as batches; and "refit, again", Pegasos on all
rows, and the same refit. Times are wall and processor seconds, compilation included.

`rows` is a field. The file lies in a temporary folder, so `TMPDIR` says on which disk;
eight million rows take a quarter of an hour.
"""

import atexit
import functools
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import timing
from models import error
from runner import Case, Row, given, product
from scipy import ndimage
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets, stream

CHUNK, KEPT, BUDGET = 1000, 8192, 500
# For pixels from 0 to 1; the best on 5,000 deformed digits after 80,000 others.
GAMMA, REGULARIZATION = 0.04, 1e-5
ROUND = 3, 6, 8, 9, 0
LEARNERS = ("Pegasos, merge", "AROW", "refit, once", "refit, again")


def fields(count: int, seed: int) -> np.ndarray:
    """Smooth random displacements of 28 x 28 pixels, with a deviation of 0.6."""
    noise = np.random.default_rng(seed).normal(size=(count, 28, 28))
    smooth = ndimage.gaussian_filter(noise, (0, 4, 4), mode="wrap")
    return (0.6 * smooth / smooth.std(axis=(1, 2), keepdims=True)).astype(np.float32)


def deformed(images: np.ndarray, bank: np.ndarray, seed: int) -> np.ndarray:
    """Each image once, deformed: shape `(n, 28, 28)`.

    It is moved by up to a pixel, rotated by up to 8 degrees, stretched and sheared by
    up to 8 percent, and warped by two fields of the bank.
    """
    random = np.random.default_rng(seed)
    n = len(images)

    def drawn(most: float) -> np.ndarray:
        return random.uniform(-most, most, (n, 1, 1)).astype(np.float32)

    angle, stretch_x, stretch_y = drawn(np.deg2rad(8)), drawn(0.08), drawn(0.08)
    shear = drawn(0.08)
    row, column = np.mgrid[:28, :28].astype(np.float32) - 13.5
    turned = np.cos(angle), np.sin(angle)
    x = (1 + stretch_x) * (turned[0] * column + turned[1] * row) + shear * row
    y = (1 + stretch_y) * (turned[0] * row - turned[1] * column)
    one, two = random.integers(len(bank), size=(2, n))
    x += 13.5 + drawn(1.0) + bank[one]
    y += 13.5 + drawn(1.0) + bank[two]
    # Interpolates bilinearly; pixels outside are black.
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    x, y = np.clip(x + 1, 0, 28.999), np.clip(y + 1, 0, 28.999)
    left, top = x.astype(np.int32), y.astype(np.int32)
    x, y = x - left, y - top
    place = 900 * np.arange(n, dtype=np.int32)[:, None, None] + 30 * top + left
    flat = framed.ravel()
    above = flat[place] * (1 - x) + flat[place + 1] * x
    below = flat[place + 30] * (1 - x) + flat[place + 31] * x
    return above * (1 - y) + below * y


def generate(folder: Path, rows: int, seed: int = 0) -> tuple[Path, Path]:
    """The files of X, float32, and of the digits."""
    paths = folder / f"digits-{rows}-X.npy", folder / f"digits-{rows}-y.npy"
    data = datasets.load("mnist", standardise=False)
    images = (data.X_train / 255).reshape(-1, 28, 28)
    bank = fields(1000, seed)
    random = np.random.default_rng(seed)
    # Every digit equally often, in random order.
    rounds = range(-(-rows // len(images)))
    order = np.concatenate([random.permutation(len(images)) for _ in rounds])[:rows]
    np.save(paths[1], data.y_train[order])
    out = np.lib.format.open_memmap(paths[0], "w+", np.float32, (rows, 784))
    for start in tqdm(range(0, rows, CHUNK), unit=" chunks", mininterval=10):
        some = deformed(images[order[start : start + CHUNK]], bank, seed + 1 + start)
        out[start : start + CHUNK] = some.reshape(len(some), 784)
    out.flush()
    return paths


def labels(digits: np.ndarray) -> np.ndarray:
    return np.where(np.isin(digits, ROUND), 1, -1).astype(np.int32)


def batches(paths: tuple[Path, Path]) -> Iterator[tuple[Any, Any]]:
    for X, digits in stream.npy(*paths):
        yield X, labels(digits)


def learned(learner: str, paths: tuple[Path, Path]) -> Any:
    kernel, rows = bj.RBF(GAMMA), batches(paths)
    shape: dict[str, Any] = {"num_features": 784, "budget": BUDGET}
    if learner == "AROW":
        return bj.fit_stream(bj.AROW().init(kernel, **shape), rows).state
    state = bj.Pegasos(regularization=REGULARIZATION).init(kernel, **shape)
    first: list[tuple[Any, Any]] = []
    while learner == "refit, once" and sum(len(y) for _, y in first) < KEPT:
        first.append(next(rows))
    state = bj.fit_stream(state, first or rows).state
    if learner == "Pegasos, merge":
        return state
    rest = rows if first else batches(paths)
    return bj.refit(state, itertools.chain(first, rest))


def child(learner: str, *paths: str) -> dict[str, Any]:
    """The figures of one learner, measured in this process."""
    data = datasets.load("mnist", standardise=False)
    X, y = data.X_test / 255, labels(data.y_test)
    del data
    files = (Path(paths[0]), Path(paths[1]))
    with timing.memory() as memory:
        wall, processor = time.perf_counter(), time.process_time()
        state = jax.block_until_ready(learned(learner, files))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    wrong = error(bj.predict(state, X), y)
    rows = len(np.load(files[1], mmap_mode="r"))
    return {
        "error %": wrong,
        "seconds": wall,
        "processor s": processor,
        "rows/s": rows / wall,
        **memory,
        "GB of file": files[0].stat().st_size / 1e9,
    }


def measured(learner: str, rows: int) -> Row:
    """The figures of one learner, measured in its own process."""
    files = map(str, paths_of(rows))
    return timing.apart("tasks.scale", "child", learner, *files)


@functools.cache
def paths_of(rows: int) -> tuple[Path, Path]:
    """The files, which last as long as the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return generate(Path(folder), rows)


def cases() -> Iterator[Case]:
    """All learners."""
    return product(measured, learner=LEARNERS, rows=given("rows", 8_000_000))
