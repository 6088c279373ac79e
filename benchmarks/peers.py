"""What a user would pick instead of budgetjax, on the same rows.

A peer takes data, the budget, gamma, lambda and a seed. It makes one pass and returns

- `blocks us`: microseconds of fitting per example; predicting, and reading and writing
  files, do not count,
- `accuracy %`: on the test rows,
- `vectors`: support vectors, or components of the feature map,

or `None` where the environment variable of its binary, `BUDGETEDSVM_TRAIN`,
`BUDGETED_SDUAL_SVM` or `KOL`, is not set.
`gamma` is that of `exp(-gamma ||x - z||^2)` and `regularization` is lambda in
`lambda / 2 ||f||^2 + mean hinge loss`; each peer translates them to its own.
"""

import contextlib
import os
import re
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import timing
from models import accuracy
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

REPEATS = 3
Found = dict[str, float] | None


class Data(NamedTuple):
    """Rows in float32, and labels -1 and +1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def figures(self, seconds: float, accuracy: float, vectors: float) -> Found:
        """What a peer returns, of the seconds for all rows."""
        us = seconds / len(self.X) * 1e6
        return {"blocks us": us, "accuracy %": accuracy, "vectors": int(vectors)}


def nystroem(data: Data, budget, gamma, regularization, seed) -> Found:
    """scikit-learn: a feature map of `budget` components, averaged SGD on top.

    The time is wall time, the median of several fits, with all threads of BLAS for the
    feature map or with one, whichever is faster: on a busy machine all threads can be
    many times slower. SGD uses one thread. It shuffles the rows, and keeps the features
    of all rows in memory.
    """
    features = Nystroem(gamma=gamma, n_components=budget, random_state=seed)
    once: dict[str, Any] = {"average": True, "max_iter": 1, "tol": None}
    classifier = SGDClassifier(alpha=regularization, random_state=seed, **once)

    def fit():
        classifier.fit(features.fit_transform(data.X), data.y)

    seconds = []
    for threads in (None, 1):
        with threadpool_limits(threads):
            seconds.append(timing.median(fit, REPEATS))
    predicted = classifier.predict(features.transform(data.X_test))
    right = accuracy(predicted, data.y_test)
    return data.figures(min(seconds), right, len(features.components_))


def budgetedsvm(data: Data, budget, gamma, regularization, seed) -> Found:
    """BudgetedSVM in C++: Pegasos with merging, "BSGD"; one thread.

    Djuric, Lan, Vucetic and Wang (2013), "BudgetedSVM: a toolbox for scalable SVM
    approximations". `BUDGETEDSVM_TRAIN` names `budgetedsvm-train`, and
    `budgetedsvm-predict` is in the same folder. The time is the processor time that the
    binary reports, without reading and writing.

    Options: BSGD (`-A 4`), merging (`-m 1`), one epoch (`-e 1`; its default is 5), the
    rows in the order given (`-r 0`; by default it shuffles them, so `seed` plays no
    role) and in one chunk (`-z`), no bias (`-b 0`). Its kernel is
    `exp(-gamma / 2 ||x - z||^2)`, so it gets twice our gamma. It keeps one function per
    class, f and -f, and asks for `f(x) - (-f(x)) > 1`: with twice our lambda, this is
    our problem for `2 f`. Three things differ: the first support vector has the
    coefficient 2 in `2 f`, not 1 / lambda; golden section search stops at 1e-4; an
    example equal to a support vector is merged with it. Its models are text, with six
    decimals of gamma.
    """
    train = os.environ.get("BUDGETEDSVM_TRAIN")
    if not train:
        return None
    predict = Path(train).with_name(Path(train).name.replace("train", "predict"))
    options = {
        "-A": 4,
        "-m": 1,
        "-e": 1,
        "-r": 0,
        "-b": 0,
        "-D": data.X.shape[1],
        "-z": max(len(data.X), len(data.X_test)) + 1,
        "-B": budget,
        "-g": 2 * gamma,
        "-L": 2 * regularization,
        "-v": 1,
    }
    with _files(data) as (rows, test_rows):
        model, labels = rows.with_name("model"), rows.with_name("labels")
        output = _run(train, *_flags(options), rows, model)
        _run(predict, "-z", options["-z"], test_rows, model, labels)
        predicted = np.loadtxt(labels)
        vectors = _number(r"NUMBER_OF_WEIGHTS: (\d+)", model.read_text())
    seconds = _number(r"Training completed in ([\d.]+) seconds", output)
    return data.figures(seconds, accuracy(predicted, data.y_test), vectors)


def budgeted_sdual_svm(data: Data, budget, gamma, regularization, seed) -> Found:
    """BudgetedSdualSVM in C++: Pegasos with merging by a table; one thread.

    Glasmachers and Qaadan (2018), "Speeding up budgeted stochastic gradient descent SVM
    training with precomputed golden section search". `BUDGETED_SDUAL_SVM` names the
    binary, compiled to look the loss of a merge up (`LOOKUP_WD`). The published source
    needs repairs first: it uses streams that are not declared, reads an argument past
    the last, and starts a grid of the table with 401 zeros. No repository has the
    table, so it is computed here.

    Options: BSGD (`--method 0`), the partner with the least loss (`--heuristic 0`), one
    epoch in an order of its own, no bias, lambda = 1 / (n C). The time is the processor
    time of the epoch, which it writes to a file.
    """
    binary = os.environ.get("BUDGETED_SDUAL_SVM")
    if not binary:
        return None
    with _files(data) as (rows, test_rows):
        folder, table = rows.parent, rows.with_name("table")
        np.savetxt(table, _losses_of_merges(400).ravel(), fmt="%.9g")
        options = {
            "--method": 0,
            "--heuristic": 0,
            "--epochs": 1,
            "--B": budget,
            "--gamma": gamma,
            "--C": 1 / (regularization * len(data.X)),
            "--train": rows,
            "--test": test_rows,
            "--lookup": table,
        }
        output = _run(Path(binary).resolve(), *_flags(options), folder=folder)
        times = (folder / "BSGDsolver" / "trainingtime.txt").read_text()
    seconds = _number(r"trainingtime.:([\d.e-]+)", times)
    right = _number(r"average performance : ([\d.]+)", output)
    return data.figures(seconds, right, _number(r"\d:(\d+):", output))


def _losses_of_merges(steps: int) -> np.ndarray:
    """Squared losses of merging m x and (1 - m) z with k(x, z) = k, at the best `h`.

    Row i has `m = i / steps`, column j has `k = j / steps`. There is one more of each,
    since the table is interpolated between neighbours.
    """
    m = np.arange(steps + 2)[:, None] / steps
    k = np.minimum(np.arange(steps + 2)[None] / steps, 1)
    best = np.zeros(np.broadcast_shapes(m.shape, k.shape))
    for h in np.linspace(0, 1, 2_001):
        best = np.maximum(best, m * k ** ((1 - h) ** 2) + (1 - m) * k ** (h**2))
    return np.maximum(m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * k - best**2, 0)


def kol(data: Data, budget, gamma, regularization, seed) -> Found:
    """KOL in C++: the Forgetron.

    Lu, Hoi, Wang, Zhao and Liu (2016), "Large scale online kernel learning". `KOL`
    names the binary. It makes one pass in the order given and has neither
    regularization nor a seed.

    A second thread reads the file while the first learns, and the reported time
    includes both. The time here is therefore the processor time of a run, user and
    system, minus that of a run with a budget of 1, which does little more than read:
    the median of several differences.
    """
    binary = os.environ.get("KOL")
    if not binary:
        return None
    options = {"-opt": "kernel-forgetron", "-gamma": gamma}
    with _files(data) as (rows, test_rows):
        command = (binary, "-i", rows, *_flags(options), "-B")

        def seconds(budget):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _run(*command, budget)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        learning = statistics.median(
            seconds(budget) - seconds(1) for _ in range(REPEATS)
        )
        output = _run(*command, budget, "-t", test_rows)
    right = _number(r"Test acuracy: ([\d.]+)", output)
    return data.figures(learning, right, _number(r"#SV:(\d+)", output))


# By the names that they have in results.
PEERS: dict[str, Callable[..., Found]] = {
    "scikit-learn, Nystroem + SGD": nystroem,
    "BudgetedSVM, BSGD with merging": budgetedsvm,
    "BudgetedSdualSVM, BSGD with merging by a table": budgeted_sdual_svm,
    "KOL, Forgetron": kol,
}


@contextlib.contextmanager
def _files(data: Data) -> Iterator[tuple[Path, Path]]:
    """The training and the test rows as files of a folder."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "train", Path(folder) / "test"
        _write(paths[0], data.X, data.y)
        _write(paths[1], data.X_test, data.y_test)
        yield paths


def _write(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    """A LIBSVM text file; nine digits identify a float32, and KOL reads no more."""
    with path.open("w") as file:
        for row, label in zip(np.asarray(X), np.asarray(y), strict=True):
            (columns,) = np.nonzero(row)
            pairs = zip(columns.tolist(), row[columns].tolist(), strict=True)
            features = " ".join(f"{column + 1}:{value:.9g}" for column, value in pairs)
            file.write(f"{int(label)} {features}\n")


def _flags(options: dict[str, Any]) -> list[Any]:
    return [part for option in options.items() for part in option]


def _run(*command: Any, folder: Path | None = None) -> str:
    """The command's output; raises its error if it fails."""
    parts = [str(part) for part in command]
    return subprocess.run(
        parts, check=True, capture_output=True, text=True, cwd=folder
    ).stdout


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"no {pattern!r} in the output {text[-500:]!r}")
    return float(found.group(1))
