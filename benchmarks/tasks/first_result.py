"""The time to first results, each in its own process.

Figures are wall and CPU seconds of a process from start to end, imports and compilation
included, as medians of several runs that take turns. Estimators and the command line
keep compiled programs: their figures are with an empty folder (cold) and with the one
that the last run has filled (warm). So are those of five data sets of different shapes,
fitted one after the other in one process.
"""

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas
from runner import ROOT, Case, given

DATA = """
import numpy as np
random = np.random.default_rng(0)
X = random.normal(size=({rows}, 16)).astype(np.float32)
classes = 2 * (X[:, 0] * X[:, 1] > 0) + (X[:, 2] + X[:, 3] > 0)
"""

RUN = """
import budgetjax as bj
y = np.where(classes > 1, 1, -1)
state = bj.{init}
state, scores = bj.run(state, X, y)
"""

SHAPE = "bj.RBF(0.05), num_features=16, budget=100"
LEARNERS = {
    "pegasos": f"Pegasos(regularization=1e-3).init({SHAPE})",
    "arow": f"AROW().init({SHAPE})",
}

FIT = """
from budgetjax.estimators import BudgetedKernelClassifier
BudgetedKernelClassifier().fit(X, classes)
"""

# Rows, columns and classes.
SHAPES = ((5000, 10, 2), (5200, 11, 2), (4100, 14, 3), (7000, 25, 5), (2500, 8, 2))
FIVE = f"""
import numpy as np
from budgetjax.estimators import BudgetedKernelClassifier
for rows, columns, classes in {SHAPES}:
    X = np.random.default_rng(rows).normal(size=(rows, columns))
    values = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2])
    edges = np.quantile(values, np.arange(1, classes) / classes)
    y = np.searchsorted(edges, values)
    BudgetedKernelClassifier(random_state=0).fit(X, y)
"""

NYSTROEM = """
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
make_pipeline(Nystroem(gamma=0.05, n_components=100), LinearSVC()).fit(X, classes)
"""


def scripts():
    """Name and source of every script."""
    few, many = DATA.format(rows=2000), DATA.format(rows=5000)
    for name, init in LEARNERS.items():
        yield f"run {name}", few + RUN.format(init=init)
    yield "fit, Nystroem + LinearSVC", many + NYSTROEM


def seconds_of(command, environment):
    """Wall and CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, used


def write_table(path):
    """A CSV file of 2,000 rows to train on."""
    X = np.random.default_rng(0).normal(size=(2000, 16))
    table = pandas.DataFrame(X, columns=[f"x{i}" for i in range(16)])
    table["label"] = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
    table.to_csv(path, index=False)


def everything(repeats):
    """A row for each process."""
    # As after an installation, and whether or not Python may write bytecode here.
    compileall.compile_dir(ROOT / "budgetjax", quiet=1)
    folder = Path(tempfile.mkdtemp())
    table = folder / "table.csv"
    write_table(table)
    base = dict(os.environ)
    base["PYTHONPATH"] = f"{ROOT}{os.pathsep}{base.get('PYTHONPATH', '')}"
    base.pop("JAX_COMPILATION_CACHE_DIR", None)
    train = [sys.executable, "-m", "budgetjax", "train", str(table)]
    train += ["--target", "label", "--model", str(folder / "m"), "--quiet"]
    fit = [sys.executable, "-c", DATA.format(rows=5000) + FIT]
    five = [sys.executable, "-c", FIVE]
    timed = {}

    def take(name, command, environment):
        wall, used = seconds_of(command, environment)
        walls, uses = timed.setdefault(name, ([], []))
        walls.append(wall)
        uses.append(used)
        print(f"{name}: {wall:.1f} s, {used:.1f} s of CPU", flush=True)

    kept = {"train": train, "fit, default classifier": fit, "five fits": five}
    for repeat in range(repeats):
        for name, source in scripts():
            take(name, [sys.executable, "-c", source], base)
        for name, command in kept.items():
            place = str(folder / f"{name}-{repeat}")
            for state in ("cold", "warm"):
                take(f"{name}, {state}", command, base | {"XDG_CACHE_HOME": place})
    return [
        {
            "what": name,
            "seconds": statistics.median(walls),
            "CPU seconds": statistics.median(uses),
        }
        for name, (walls, uses) in timed.items()
    ]


def cases() -> Iterator[Case]:
    """All processes in turns."""
    (repeats,) = given("repeats", 3)
    yield Case({"part": "processes"}, lambda: everything(repeats))
