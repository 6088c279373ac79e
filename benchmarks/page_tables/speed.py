"""The tables of the page on speed and memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from page_tables.front import by_data_and_budget
from page_tables.results import (
    Cells,
    Where,
    figure,
    fixed,
    grid,
    half_up,
    microseconds,
    one,
    percent,
    rows,
    seconds,
    share,
    significant,
    spread,
    states,
    table,
    thousands,
    value,
    whole,
)

PAGE = "benchmarks/speed.md"
micro = significant(2)


@table(PAGE, "compilation")
def compilation() -> Cells:
    columns: dict[str, Where] = {
        "Perceptron": {"what": "perceptron"},
        "passive-aggressive": {"what": "passive_aggressive"},
        "Pegasos, merge": {"what": "pegasos"},
        "Projectron": {"what": "projectron"},
        "AROW": {"what": "arow"},
        "refit": {"what": "refit"},
    }
    cell = figure("compilation", "CPU seconds")
    return grid({"seconds": {}}, columns, cell)


LEARNERS = {
    "Pegasos, merge": "merge",
    "Pegasos, remove smallest": "smallest",
    "Forgetron": "forgetron",
    "Perceptron, oldest": "oldest",
}
STREAMS = (
    ("checkerboard", 100, "Pegasos, merge"),
    ("checkerboard", 500, "Pegasos, merge"),
    ("ijcnn1", 100, "Pegasos, merge"),
    ("ijcnn1", 500, "Pegasos, merge"),
    ("ijcnn1", 500, "Forgetron"),
    ("ijcnn1", 500, "Perceptron, oldest"),
    ("covtype", 100, "Pegasos, merge"),
    ("covtype", 500, "Pegasos, merge"),
    ("covtype", 500, "Pegasos, remove smallest"),
    ("mnist", 100, "Pegasos, merge"),
    ("mnist", 500, "Pegasos, merge"),
)


def stream(data: str, budget: int, learner: str) -> dict[str, Any]:
    """The figures of one stream."""
    return one("speed-cpu", data=data, B=budget, learner=LEARNERS[learner])


@table(PAGE, "streams")
def streams() -> Cells:
    lines = [
        [f"{data}, {budget}, {learner}", *times_of(stream(data, budget, learner))]
        for data, budget, learner in STREAMS
    ]
    return [["data, budget, learner", *TIMES], *lines]


TIMES = ("changes", "plain scan of `step`", "`bj.run`", "predicting", "ratio")


def times_of(row: dict[str, Any]) -> list[str]:
    times = (row[f"{way} us"] for way in ("scan", "blocks", "predict"))
    return [
        share(row["violations"]),
        *map(microseconds, times),
        percent(row["blocks/predict"]),
    ]


@table(PAGE, "learning")
def learning() -> Cells:
    """Pegasos with merging, after a block became one kernel."""
    lines = [
        [f"{row['data']}, {row['B']}", *times_of(row)]
        for row in rows("speed-cpu-learning")
    ]
    return [["data, budget", *TIMES], *lines]


@table(PAGE, "pairs")
def pairs() -> Cells:
    lines = [["data, budget", "predicting", "Projectron", "Pegasos, `Project`", "AROW"]]
    for name, where in by_data_and_budget(("ijcnn1", "covtype"), (100, 500)).items():
        own = [
            one("speed-cpu-pairs", learner=learner, **where)
            for learner in ("projectron", "project", "arow")
        ]
        # The Projectron's model is the plainest of the three to predict by.
        predicting = fixed(2)(own[0]["predict us"])
        lines.append([name, predicting, *(micro(row["blocks us"]) for row in own)])
    return lines


@table(PAGE, "order")
def order() -> Cells:
    head = ["budget", "BudgetedSdualSVM, random order"]
    head += ["Pegasos, merge, as the rows lie", "Pegasos, merge, random orders"]
    lines = [head]
    sdual = "BudgetedSdualSVM, BSGD with merging by a table"
    for budget in (50, 100, 500):
        line = [str(budget)]
        for learner in (sdual, "merge"):
            where = {"data": "ijcnn1", "B": budget, "learner": learner}
            line.append(percent(value("speed-cpu-peers", "accuracy %", **where)))
        random = {"data": "ijcnn1", "B": budget, "method": "Pegasos, merge"}
        cell = figure("accuracy", "accuracy %", model="last")
        lines.append([*line, cell(random)])
    return lines


@table(PAGE, "flag")
def flag() -> Cells:
    lines: dict[str, Where] = {
        "checkerboard, 100": {"data": "checkerboard", "B": 100},
        "ijcnn1, 100": {"data": "ijcnn1", "B": 100},
        "ijcnn1, 500": {"data": "ijcnn1", "B": 500},
    }
    cell = figure("speed-cpu-whole-loops", "blocks us", fixed(2), learner="merge")
    return grid(lines, {"microseconds": {}}, cell, "data, budget")


STRATEGIES = {
    "`Merge`": "Merge",
    "`Project`": "Project",
    "`DelayedProject(1/16)`": "DelayedProject(1 / 16)",
    "`DelayedProject(1/8)`": "DelayedProject(1 / 8)",
    "`DelayedProject(1/4)`": "DelayedProject(1 / 4)",
    "`DelayedProject(1/2)`": "DelayedProject(1 / 2)",
}


def delayed(key: str, text: Callable[[Any], str]) -> Cells:
    """Projections one at a time and many at once."""
    columns = by_data_and_budget(("ijcnn1", "checkerboard", "covtype"), (100, 500))
    lines: dict[str, Where] = {
        name: {"maintenance": of} for name, of in STRATEGIES.items()
    }
    return grid(lines, columns, figure("delayed", key, text))


@table(PAGE, "projections")
def projections() -> Cells:
    return delayed("us an update", micro)


@table(PAGE, "projections-last")
def projections_last() -> Cells:
    return delayed("accuracy %", percent)


@table(PAGE, "projections-average")
def projections_average() -> Cells:
    return delayed("average %", percent)


def slope(axis: str, learner: str, key: str = "us") -> float:
    """The slope of log cost in the upper half of a line."""
    line = rows("growth", axis=axis, learner=learner)
    upper = line[len(line) // 2 - 1 :]
    values, costs = np.log([[row["value"], row[key]] for row in upper]).T
    return float(np.polyfit(values, costs, 1)[0])


PLAIN = ("Perceptron, remove oldest", "Pegasos, merge")


def without_sign(x: float) -> str:
    """One digit after the point; what rounds to 0 has no sign."""
    return percent(round(x, 1) + 0)


@table(PAGE, "growth")
def growth() -> Cells:
    lines = [["in the", "removal and merging", "AROW"]]
    for axis in ("budget", "features", "classes", "models", "rows"):
        plain = spread([slope(axis, learner) for learner in PLAIN], without_sign)
        lines.append([axis, plain, without_sign(slope(axis, "AROW"))])
    return lines


SCALE = ("Pegasos, merge", "AROW", "refit, once", "refit, again")


def scale(task: str) -> Cells:
    """Errors and seconds of one and eight million deformed digits."""
    head = ["", "a million: error, %", "seconds", "eight million: error, %", "seconds"]
    lines = [head]
    for learner in SCALE:
        line = [learner]
        for count in (10**6, 8 * 10**6):
            row = one("scale", task=task, learner=learner, rows=count)
            line += [fixed(2)(row["error %"]), whole(row["seconds"])]
        lines.append(line)
    return lines


@table(PAGE, "digits-round")
def digits_round() -> Cells:
    return scale("round")


@table(PAGE, "digits-8")
def digits_8() -> Cells:
    return scale("8")


@table(PAGE, "digits-rates")
def digits_rates() -> Cells:
    lines = [["", "rows per second", "MiB held"]]
    for learner in SCALE:
        own = rows("scale", learner=learner)
        rates = spread([row["rows/s"] for row in own], thousands)
        lines.append([learner, rates, whole(max(row["MiB"] for row in own))])
    return lines


PENALTIES: dict[str, Where] = {
    "a9a, all rows": {"data": "a9a", "rows": 1_000_000},
    "a9a": {"data": "a9a", "rows": 20_000},
    "w8a": {"data": "w8a"},
    "ijcnn1": {"data": "ijcnn1", "largest penalty": 10.0},
    "ijcnn1, penalties to 100": {"data": "ijcnn1", "largest penalty": 100.0},
    "covtype, class 2": {"data": "covtype"},
}


@table(PAGE, "penalties")
def penalties() -> Cells:
    head = ["", "rows: train, test", "accuracy, %", "penalty", "seconds"]
    head += ["`LinearSVC`: accuracy, %", "its seconds, extrapolated"]
    lines = [head]
    for name, where in PENALTIES.items():
        row = one("penalties", **where)
        lines.append([
            name,
            f"{row['trained on']:,}, {row['tested on']:,}",
            percent(row["test %"]),
            significant(2)(row["penalty"]),
            seconds(row["seconds"]),
            percent(row["scikit-learn test %"]),
            whole(row["scikit-learn x 100 s"]),
        ])  # fmt: skip
    return lines


KERNEL = {
    "MNIST, 8 against the rest, 60,000 rows, C = 1000": "mnist, C=1000",
    "Adult (a9a), 32,561 rows, sigma² = 10, C = 1": "a9a, C=1",
    "Adult, sigma² = 100, C = 100": "a9a, C=100",
}


@table(PAGE, "kernel-solvers")
def kernel_solvers() -> Cells:
    head = ["training set", "`SVC`: seconds", "`SVC`: error"]
    head += ["SBP: a quarter, half", "SBP: seconds", "SMO: seconds"]
    lines = [head]
    for name, data in KERNEL.items():
        row = one("papers/sbp_libsvm", data=data)
        svc, sbp = row["SVC"], row["SBP"]
        until = []
        for solver in ("SBP", "SMO"):
            part = row[solver]["to 0.1 more"]
            until.append(
                f"more than {whole(row[solver]['seconds'])}"
                if isinstance(part, str)
                else whole(part * svc["seconds"])
            )
        parts = ", ".join(
            fixed(2)(sbp[f"error at {part}"]) for part in ("quarter", "half")
        )
        error = fixed(2)(svc["error"])
        lines.append([name, whole(svc["seconds"]), error, parts, *until])
    return lines


LINEAR = {
    "Adult": ("Adult", "Adult (a9a), 32,561 x 123, sparse"),
    "Web": ("Web", "Web (w8a), 49,749 x 300, sparse"),
    "ijcnn1": ("ijcnn1", "ijcnn1, 49,990 x 22, dense"),
    "text": ("generated text", "generated text, 20,000 x 100,000, sparse"),
    "Covertype 1": (
        "covtype, class 1",
        "covtype, class 1 against the rest, 581,012 x 54, dense",
    ),
    "Covertype 2": ("covtype, class 2", "covtype, class 2"),
}
SOLVERS = {
    "MPU": "MPU",
    "dual coordinate descent": "DCD",
    "`LinearSVC`": "LIBLINEAR",
    "Pegasos": "Pegasos",
}
HIGH, LOW = 1e-4, 1e-2
TABLES = "papers/mpu_tables"


def linear(accuracy: float, long: bool) -> Cells:
    """Seconds to an objective near the optimum."""
    lines = [["training set", *SOLVERS]]
    for data, names in LINEAR.items():
        line = [names[long]]
        for method in SOLVERS.values():
            row = one(TABLES, data=data, accuracy=accuracy, method=method)
            # The last digit of fast solvers is a hundredth.
            taken = row["seconds"]
            short = significant(2 if taken >= 1 or method != "Pegasos" else 1)
            text = fixed(2)(taken) if taken < 0.1 else short(taken)
            line.append(text if row["gap"] <= accuracy else f"more than {text}")
        lines.append(line)
    return lines


@table(PAGE, "linear-solvers")
def linear_solvers() -> Cells:
    return linear(HIGH, long=True)


@table(PAGE, "linear-solvers-1-percent")
def linear_solvers_loose() -> Cells:
    return linear(LOW, long=False)


def better(data: str, accuracy: float) -> float:
    """The better of MPU and dual coordinate descent over LIBLINEAR."""
    return min(
        value(TABLES, "LIBLINEAR's times", data=data, accuracy=accuracy, method=method)
        for method in ("MPU", "DCD")
    )


@table(PAGE, "linear-ratios")
def linear_ratios() -> Cells:
    lines = [["", "to 10⁻⁴", "to 1%"]]
    for name, sets in {
        "Web, both of covtype": ("Web", "Covertype 1", "Covertype 2"),
        "ijcnn1": ("ijcnn1",),
        "generated text": ("text",),
        "Adult": ("Adult",),
    }.items():
        cells = [
            spread([better(data, accuracy) for data in sets], significant(2))
            for accuracy in (HIGH, LOW)
        ]
        lines.append([name, *cells])
    return lines


@table(PAGE, "path")
def path() -> Cells:
    lines: dict[str, Where] = {
        name: {"method": method}
        for name, method in SOLVERS.items()
        if method != "Pegasos"
    }
    columns: dict[str, Where] = {
        "to 10⁻⁴": {"accuracy": HIGH},
        "to 1%": {"accuracy": LOW},
    }
    return grid(lines, columns, figure("papers/mpu_path", "seconds"))


@states(PAGE)
def sentences():
    taken = [row["CPU seconds"] for row in rows("compilation")]
    yield f"Everything compiles in {whole(min(taken))} to {whole(max(taken))} seconds"
    few = [
        stream(*each)["blocks/predict"]
        for each in STREAMS
        if each[0] in ("checkerboard", "ijcnn1")
    ]
    most = max(
        stream(*each)["blocks/predict"] for each in STREAMS if each[0] == "covtype"
    )
    yield (
        f"Learning costs {spread(few)} times as much as predicting on the checkerboard "
        "and ijcnn1"
    )
    yield f"up to {percent(most)} times on covtype"
    same = [row for row in rows("speed-cpu") if row.get("same model") == "no"]
    learners = sorted({row["learner"] for row in same})
    assert learners == ["forgetron", "oldest"]
    compared = [row for row in rows("speed-cpu") if "same model" in row]
    yield f"In {len(same)} of the {len(compared)} runs"
    memory = slope("budget", "Pegasos, merge", "MiB"), slope("budget", "AROW", "MiB")
    yield (
        f"The slope of memory over the budget is {percent(memory[0])}, and "
        f"{percent(memory[1])} for AROW."
    )
    yield f"AROW's {percent(slope('budget', 'AROW'))} is above"
    ratio = [row["scikit-learn x 100 s"] / row["seconds"] for row in rows("penalties")]
    yield (
        f"The whole search is {spread(ratio, whole)} times faster than calls of "
        "`LinearSVC`"
    )
    behind = [row["scikit-learn test %"] - row["test %"] for row in rows("penalties")]
    yield f"`LinearSVC` is up to {percent(max(behind))} points more accurate"
    both = {
        method: rows("papers/mpu_path", method=method)
        for method in ("MPU", "DCD", "LIBLINEAR")
    }
    shares = [row["LIBLINEAR's times"] for name in ("MPU", "DCD") for row in both[name]]
    yield f"takes {spread(shares)} of the time of separate calls"
    held = max(row["MiB"] for row in rows("scale"))
    assert held < 512
    minutes = [row["seconds"] / 60 for row in rows("scale", rows=8 * 10**6)]
    yield (
        f"A core learns eight million rows in {whole(min(minutes))} to "
        f"{whole(max(minutes))} minutes and less than 0.5 GiB"
    )
    once = one("papers/mpu_memory", data="350,000 x 254", method="mpu")
    yield (
        f"to 1% in {percent(once['seconds'])} seconds within "
        f"{percent(once['GiB at most'])} GiB"
    )
    faster, lost = [], {"1 / 8": [], "more": []}
    for where in by_data_and_budget(
        ("ijcnn1", "checkerboard", "covtype"), (100, 500)
    ).values():
        plain = one("delayed", maintenance="Project", **where)
        for part in ("1 / 16", "1 / 8", "1 / 4", "1 / 2"):
            row = one("delayed", maintenance=f"DelayedProject({part})", **where)
            if where["B"] == 500:
                faster.append(plain["us an update"] / row["us an update"])
            below = half_up(plain["average %"], 1) - half_up(row["average %"], 1)
            if part == "1 / 8":
                lost["1 / 8"].append(below)
            elif part != "1 / 16" and where["data"] == "ijcnn1":
                lost["more"].append(below)
    yield (
        f"delayed projections are {spread(faster, whole)} times faster than `Project`"
    )
    yield (
        f"is at most {percent(max(lost['1 / 8']))} points below that of `Project`; "
        f"with more, it loses up to {percent(max(lost['more']))} points on ijcnn1"
    )


@states(PAGE)
def words_below_tables():
    sizes = sorted({row["GB of file"] for row in rows("scale")})
    yield f"`.npy` file of {percent(sizes[0])} or {whole(sizes[1])} GB"
    ours = [
        row[solver] for row in rows("papers/sbp_libsvm") for solver in ("SBP", "SMO")
    ]
    parts = spread((100 * own["to 0.1 more"] for own in ours), whole)
    yield f"that close to the error of `SVC` in {parts}% of its time"
    first = [own["first call"] for own in ours]
    yield f"Compilation takes {spread(first, whole)} processor seconds more"
    bsgd = one("published", paper="BudgetedSVM", method="BSGD", B="500")
    yield f"is {fixed(2)(bsgd['error %'])}% in {bsgd['time'].replace('h', ' hours')}"
