"""The tables of the README and of the first page of the benchmarks."""

import statistics
from collections.abc import Callable

from page_tables.results import (
    Cells,
    Where,
    figure,
    fixed,
    grid,
    microseconds,
    named,
    one,
    percent,
    rows,
    seconds,
    spread,
    states,
    table,
    thousands,
    value,
    whole,
)

PAGE = "benchmarks/README.md"
SETS = named(
    "data", ("letter", "usps", "ijcnn1", "checkerboard", "covtype-100k", "a9a")
)
METRIC = "Pegasos, merge, metric"
accuracy = figure("accuracy", "accuracy %", model="last")


def reached(data: str, method: str, budget: int = 0) -> float:
    """Test accuracy of the model that a method ends with, in percent."""
    where = {"data": data, "method": method, "B": budget, "model": "last"}
    return value("accuracy", "accuracy %", **where)


WITHOUT_BUDGET: dict[str, Where] = {
    "`SVC`": {"method": "scikit-learn SVC"},
    "its support vectors": {"method": "scikit-learn SVC", "vectors": True},
    "boosted trees": {"method": "scikit-learn HistGradientBoosting"},
}


def accuracy_or_vectors(where: Where) -> str:
    """Accuracy in percent, or the number of support vectors where that is asked."""
    if "vectors" not in where:
        return accuracy(where)
    where = {key: of for key, of in where.items() if key != "vectors"}
    return figure("accuracy", "vectors", whole)(where)


@table(PAGE, "beside-scikit-learn")
def beside() -> Cells:
    lines: dict[str, Where] = {}
    for budget in (100, 500):
        for name, method in {
            "Pegasos, merge": "Pegasos, merge",
            "AROW": "AROW",
            "refit, metric": METRIC,
            "`Nystroem`, `LinearSVC`": "scikit-learn Nystroem, LinearSVC",
        }.items():
            lines[f"{name}, {budget}"] = {"method": method, "B": budget}
    return grid(lines | WITHOUT_BUDGET, SETS, accuracy_or_vectors)


@table(PAGE, "by-budget")
def by_budget() -> Cells:
    def cell(where: Where) -> str:
        found = rows("accuracy", method=METRIC, **where)
        if not found:
            return ""
        row = one("accuracy", method=METRIC, **where)
        text = percent(row["accuracy %"])
        # Whole covtype was learned in one order.
        if where["data"] != "covtype":
            text += f" ± {percent(row['deviation'])}"
        return f"{text} ({seconds(row['seconds'])})"

    sets = ("letter", "usps", "ijcnn1", "mnist", "covtype-100k", "covtype")
    return grid(named("data", sets), named("B", (20, 100, 500, 1000)), cell)


# Sets that were measured while the machine had other work, with 100 vectors alone.
LATER = ("checkerboard", "a9a")


def joined(
    key: str, text: Callable[[float], str], later: tuple[str, ...] = ()
) -> Cells:
    """The default classifier with 100, 500 and 1,000 vectors."""

    def cell(where: Where) -> str:
        found = [
            row for budget in (100, 500, 1000)
            for row in rows(
                "default_classifier", table="budgets", data=where["data"], B=budget
            )
        ]  # fmt: skip
        name = f"{where['way']} {key}"
        return " / ".join(text(row[name]) for row in found if name in row)

    sets = ("pendigits", "satimage", "usps", "letter", "shuttle", "ijcnn1")
    ways: dict[str, Where] = {
        "default": {"way": "default"},
        "without a metric": {"way": "coefficients alone"},
        "`Nystroem`, `LinearSVC`": {"way": "Nystroem, LinearSVC"},
    }
    return grid(named("data", (*sets, *later, "covtype-100k")), ways, cell)


@table(PAGE, "default-classifier")
def default_classifier() -> Cells:
    return joined("%", percent, LATER)


@table(PAGE, "default-classifier-seconds")
def default_classifier_seconds() -> Cells:
    return joined("seconds", seconds)


@table(PAGE, "regression")
def regression() -> Cells:
    lines: dict[str, Where] = {
        "`bj.SGD`, squared loss, projection, one pass": {
            "method": "SGD squared, project", "model": "last",
        },
        "averaged `SGDRegressor` on `Nystroem` features, one pass": {
            "method": "scikit-learn Nystroem, SGDRegressor",
        },
        "`BudgetedKernelRegressor`, defaults, more passes": {
            "method": "BudgetedKernelRegressor",
        },
        "the same without a metric": {
            "method": "BudgetedKernelRegressor, no metric",
        },
        "`KernelRidge` on all 6,554 rows": {"method": "scikit-learn KernelRidge"},
        "`HistGradientBoostingRegressor`": {
            "method": "scikit-learn HistGradientBoosting",
        },
    }  # fmt: skip

    def cell(where: Where) -> str:
        # What has no budget has one figure, in the first column.
        if where["method"] in WITHOUT and where["B"] == 100:
            where = {**where, "B": 6554}
        return figure("regression", "RMSE", fixed(2))(where)

    columns: dict[str, Where] = {"100 vectors": {"B": 100}, "500 vectors": {"B": 500}}
    return grid(lines, columns, cell)


WITHOUT = ("scikit-learn KernelRidge", "scikit-learn HistGradientBoosting")


@table(PAGE, "model-files")
def model_files() -> Cells:
    head = ["", "accuracy, %", "file", "ProtoNN: accuracy, %", "ProtoNN: file"]
    lines = [head]
    for name, where, published in (
        ("letter, 200 vectors", {"data": "letter", "B": 200, "metric": "matrix"}, True),
        (
            "letter, 300 vectors",
            {"data": "letter", "B": 300, "metric": "matrix"},
            False,
        ),
        (
            "usps, 100 vectors, 32 mapped features",
            {"data": "usps", "B": 100, "metric": "rank 32"},
            True,
        ),
    ):
        row = one("model-size", **where)
        theirs = one("published", paper="ProtoNN", data=where["data"])
        lines.append([
            name,
            percent(row["accuracy %"]),
            f"{row['bytes'] / 1000:.0f} kB",
            fixed(2)(theirs["accuracy %"]) if published else "",
            f"{theirs['kB']:.0f} kB" if published else "",
        ])  # fmt: skip
    return lines


@table(PAGE, "memory")
def memory() -> Cells:
    def line(name: str, at: str, budgets: str, *where: Where) -> list[str]:
        used = ", ".join(
            whole(value("memory", "MiB more", **each)) for each in where
        )  # fmt: skip
        return [name, at, budgets, used]

    def jobs(what: str, count: int, *budgets: int) -> list[Where]:
        return [{"what": what, "rows": count, "B": budget} for budget in budgets]

    def lengths(what: str, budget: int | None, *counts: int) -> list[Where]:
        return [{"what": what, "rows": count, "B": budget} for count in counts]

    file, again = "fit_stream from a file", "refit from a file"
    many = 100_000
    return [
        ["", "rows", "budget", "MiB"],
        line(
            "`bj.run`, Pegasos with merging", "100,000", "100, 500",
            *jobs("run, Pegasos with merging", many, 100, 500),
        ),
        line("`bj.run`, AROW", "100,000", "100, 500",
             *jobs("run, AROW", many, 100, 500)),
        line("`bj.sweep`, 1,024 models of Pegasos", "2,000", "100",
             *jobs("sweep of 1,024 models, Pegasos", 2000, 100)),
        line("`bj.refit` and a short stream", "100,000", "100, 500",
             *jobs("refit", many, 100, 500)),
        line("the same with a metric", "100,000", "100, 500",
             *jobs("refit with a metric", many, 100, 500)),
        line("`bj.SMO`, with its kernel rows", "5,000, 20,000", "",
             *lengths("smo", None, 5000, 20_000)),
        line("`bj.SBP`, with its kernel rows", "20,000", "",
             *lengths("sbp", None, 20_000)),
        line("`bj.DCD`, `bj.MPU`", "100,000", "",
             *lengths("dcd", None, many), *lengths("mpu", None, many)),
        line("`bj.fit_stream`, Pegasos, a `.npy` file", "10⁵, 10⁶, 10⁷", "100",
             *lengths(file, 100, 10**5, 10**6, 10**7)),
        line("the same and a refit from the file", "10⁶, 10⁷", "100",
             *lengths(again, 100, 10**6, 10**7)),
    ]  # fmt: skip


@table(PAGE, "first-results")
def first_results() -> Cells:
    what_follows = {
        "first `bj.run`, Perceptron": "run perceptron",
        "first `bj.run`, Pegasos with merging": "run pegasos",
        "first `bj.run`, AROW": "run arow",
        "first `bj.refit`, its stream included": "run perceptron, refit",
        "first `fit` of the default classifier, 5,000 rows": (
            "fit, default classifier, cold"
        ),
        "the same again, from the cache": "fit, default classifier, warm",
        "`Nystroem` with `LinearSVC` on the same rows": "fit, Nystroem + LinearSVC",
        "first `budgetjax train`, 2,000 rows": "train, cold",
        "the same again, from its cache of programs": "train, warm",
    }
    sets = [
        row["what"].removeprefix("five sets, cold: ")
        for row in rows("first-result")
        if row["what"].startswith("five sets, cold: ")
    ]
    for shape in sets:
        for state in ("cold", "warm"):
            name = f"of five `fit`s in one process, {state}: {shape}"
            what_follows[name] = f"five sets, {state}: {shape}"
    lines: dict[str, Where] = {
        name: {"what": what} for name, what in what_follows.items()
    }
    columns: dict[str, Where] = {"loops": {}}
    return grid(lines, columns, figure("first-result", "loops"))


PEERS: dict[str, Where] = {
    "Forgetron": {"learner": "forgetron"},
    "Pegasos, merge": {"learner": "merge"},
    "KOL": {"learner": "KOL, Forgetron"},
    "`Nystroem`": {"learner": "scikit-learn, Nystroem + SGD"},
    "BudgetedSVM": {"learner": "BudgetedSVM, BSGD with merging"},
    "Sdual": {"learner": "BudgetedSdualSVM, BSGD with merging by a table"},
}


def by_data_and_budget(sets, budgets) -> dict[str, Where]:
    """Lines for every set and budget."""
    return {
        f"{data}, {budget}": {"data": data, "B": budget}
        for data in sets
        for budget in budgets
    }


@table(PAGE, "streams")
def streams() -> Cells:
    lines = by_data_and_budget(("checkerboard", "ijcnn1"), (50, 100, 500))
    cell = figure("speed-cpu-peers", "blocks us", microseconds)
    return grid(lines, PEERS, cell, "data, budget")


@table(PAGE, "files")
def files() -> Cells:
    lines = [["learned by", "from", "rows per second", "memory mapped, GiB"]]
    for learned, source, text in (
        ("bj.run", "memory", "arrays in memory"),
        ("bj.fit_stream", "Parquet", "Parquet, {} GiB"),
        ("bj.fit_stream", "CSV", "CSV, {} GiB"),
    ):
        row = one("streaming", **{"learned by": learned, "from": source})
        size = row["GiB of file"]
        lines.append([
            f"`{learned}`",
            text.format(fixed(2)(size) if size else ""),
            thousands(row["rows/s"]),
            fixed(2)(row["GiB of addresses"]),
        ])  # fmt: skip
    return lines


LEARNERS = {
    "Perceptron": "Perceptron",
    "passive-aggressive": "passive-aggressive",
    "AROW": "AROW",
    "AROW, `drift=0.01`": "AROW, drift=0.01",
    "AROW, gamma chosen": "AROW, gamma chosen",
    "AROW, `drift=0.01`, gamma chosen": "AROW, drift=0.01, gamma chosen",
    "river: logistic (softmax) regression": "logistic regression",
    "river: ALMA": "ALMA",
    "river: naive Bayes": "naive Bayes",
    "river: Hoeffding tree": "Hoeffding tree",
    "river: Hoeffding adaptive tree": "Hoeffding adaptive tree",
    "river: nearest neighbours, the last 1,000": "nearest neighbours",
    "river: adaptive random forest": "adaptive random forest",
}


def in_river(streams: dict[str, str], rates: bool) -> Cells:
    """Accuracy of all learners on some streams, and rows per second of all streams."""

    def cell(where: Where) -> str:
        if "stream" in where:
            return figure("river", "after a fifth %")(where)
        rate = [row["rows/s"] for row in rows("river", **where)]
        # To the nearest hundred; slow learners to the nearest ten.
        return spread(rate, lambda x: whole(round(x, -2 if x >= 1000 else -1)))

    columns: dict[str, Where] = {name: {"stream": of} for name, of in streams.items()}
    if rates:
        columns["rows per second"] = {}
    lines: dict[str, Where] = {name: {"learner": of} for name, of in LEARNERS.items()}
    return grid(lines, columns, cell)


@table(PAGE, "in-river")
def river_data() -> Cells:
    names = ("Phishing", "Bananas", "ImageSegments", "electricity")
    return in_river({name: name for name in names}, rates=True)


@table(PAGE, "in-river-drift")
def river_drift() -> Cells:
    names = {
        "turning checkerboard": "turning checkerboard",
        "SEA, one change": "SEA",
        "Agrawal, one change": "Agrawal",
        "RandomRBFDrift": "RandomRBFDrift",
    }
    return in_river(names, rates=False)


@table(PAGE, "learn-many")
def learn_many() -> Cells:
    def cell(where: Where) -> str:
        learner = f"{where['of']}, {where['way']} alone"
        return thousands(value("river", "rows/s", learner=learner))

    lines: dict[str, Where] = {
        name: {"of": name} for name in ("passive-aggressive", "AROW")
    }
    columns: dict[str, Where] = {
        f"`{way}`": {"way": way} for way in ("learn_one", "learn_many")
    }
    return grid(lines, columns, cell, "rows per second")


def places_in_river(ours: str) -> dict[str, list[float]]:
    """The places of one of our learners and of river's, stream by stream."""
    learners = [ours, *(of for name, of in LEARNERS.items() if name[:6] == "river:")]
    places: dict[str, list[float]] = {learner: [] for learner in learners}
    streams = {row["stream"] for row in rows("river") if "stream" in row}
    for stream in sorted(streams):
        score = {
            learner: value("river", "after a fifth %", stream=stream, learner=learner)
            for learner in learners
        }
        for learner in learners:
            ahead = sum(other > score[learner] for other in score.values())
            equal = sum(other == score[learner] for other in score.values())
            places[learner].append(ahead + (equal + 1) / 2)
    return places


@states(PAGE)
def ranks_in_river():
    places = places_in_river("AROW")
    ours, forest = places["AROW"], places["adaptive random forest"]
    yield (
        f"best on {ours.count(1)} of eight streams, an adaptive forest on "
        f"{forest.count(1)}; their mean ranks among eight learners are "
        f"{statistics.mean(ours):.1f} and {statistics.mean(forest):.1f}"
    )


@states(PAGE)
def tuned_nystroem():
    ahead = []
    sets = ("letter", "usps", "ijcnn1", "checkerboard", "a9a")
    for data in sets:
        theirs, ours = (
            [reached(data, method, budget) for budget in (100, 500)]
            for method in ("scikit-learn Nystroem, LinearSVC", METRIC)
        )
        better = [their > our for their, our in zip(theirs, ours, strict=True)]
        assert better[0] == better[1]
        ahead += [data] * better[0]
    assert ahead == ["checkerboard", "a9a"]
    yield "tuned, `Nystroem` is ahead on [two of five sets](#beside-scikit-learn)"
    yield "A tuned `Nystroem` is ahead on the checkerboard and a9a."


def behind(data: str, budget: int) -> float:
    """Points by which a refit with a metric is below the whole SVM."""
    ours = round(reached(data, METRIC, budget), 1)
    return round(reached(data, "scikit-learn SVC"), 1) - ours


@states(PAGE)
def front_page():
    yield (
        "with 500 support vectors, on letter, usps and checkerboard, yes; on ijcnn1 it "
        f"is {percent(behind('ijcnn1', 500))} points below, on covtype "
        f"{percent(behind('covtype-100k', 500))}"
    )
    size = one("model-size", data="letter", B=200, metric="matrix")
    yield (
        f"{size['bytes'] / 1000:.0f} kB for {percent(size['accuracy %'])}% on letter"
    )
    starts = [
        value("first-result", "loops", what=what)
        for what in ("run perceptron", "fit, default classifier, cold")
    ]
    yield f"{spread(starts, whole)} seconds, compilation included"
    ours = [
        row["blocks us"] for row in rows("speed-cpu-peers")
        if row["learner"] in ("forgetron", "merge")
    ]  # fmt: skip
    others = [
        value("speed-cpu-peers", "blocks us", data=data, B=budget, **peer)
        for data in ("checkerboard", "ijcnn1") for budget in (50, 100, 500)
        for name, peer in PEERS.items() if name not in ("Forgetron", "Pegasos, merge")
    ]  # fmt: skip
    yield (
        f"{spread(ours)} microseconds per row, where alternatives take "
        f"{min(others):.1f} to {max(others):,.0f}"
    )
    used = {
        rows_: value(
            "memory", "MiB more", what="fit_stream from a file", rows=rows_, B=100
        )
        for rows_ in (10**5, 10**7)
    }
    run = value("memory", "MiB more", what="run, Pegasos with merging", B=100)
    library = value("memory", "MiB before", what="nothing") - 8
    yield f"the {whole(library)} MiB that the imported library takes"
    yield (
        f"about {whole(round(run, -2))} MiB for a stream of Pegasos, "
        f"{whole(used[10**7])} MiB for ten million rows in a file"
    )
    above = round(reached("covtype-100k", METRIC, 500), 1) - round(
        reached("covtype-100k", "scikit-learn HistGradientBoosting"), 1
    )
    yield (
        f"On ijcnn1 they are {percent(behind('ijcnn1', 500))} points below it, and on "
        f"covtype-100k {percent(behind('covtype-100k', 500))} points below it and "
        f"{whole(above)} above these boosted trees"
    )
    theirs = one("published", paper="ProtoNN", data="usps")["accuracy %"]
    ours_usps = value("model-size", "accuracy %", data="usps", B=100, metric="rank 32")
    yield f"and {percent(theirs - ours_usps)} points behind"


@states(PAGE)
def questions():
    enough = {}
    for data in ("usps", "ijcnn1", "letter", "covtype-100k"):
        best = reached(data, METRIC, 1000)
        near = [size for size in (100, 500) if best - reached(data, METRIC, size) < 1]
        enough[data] = near[0] if near else 1000
    assert enough["usps"] == enough["ijcnn1"]
    yield (
        f"{enough['usps']} on usps and ijcnn1, {enough['letter']} on letter; covtype "
        f"gains up to {enough['covtype-100k']:,} and beyond"
    )
    found = rows("default_classifier", table="budgets", B=100)
    numbers = ["none", "one", "two", "three", "four", "five", "six", "seven"]
    numbers += ["eight", "nine"]
    better = sum(row["default %"] > row["Nystroem, LinearSVC %"] for row in found)
    timed = [row for row in found if row["data"] not in LATER]
    slower = sum(
        row["default seconds"] > row["Nystroem, LinearSVC seconds"] for row in timed
    )
    assert better == len(found)
    yield (
        "with 100 vectors and the same kernel it is more accurate on all "
        f"{numbers[better]} sets, and slower on {numbers[slower]} of seven"
    )


@states(PAGE)
def words_below_tables():
    where = {"table": "budgets"}
    sets: dict[str, list[float]] = {}
    for row in rows("default_classifier", **where):
        if "default seconds" in row and row["data"] not in LATER:
            ratio = row["default seconds"] / row["Nystroem, LinearSVC seconds"]
            sets.setdefault(row["data"], []).append(ratio)
    faster = [data for data, ratios in sets.items() if max(ratios) < 1]
    slower = [data for data, ratios in sets.items() if min(ratios) > 1]
    assert sorted(faster) == ["covtype-100k"]
    assert sorted(slower) == ["ijcnn1", "pendigits", "satimage", "usps"]
    # Of letter and shuttle, the first has 100 vectors.
    assert sets["letter"][0] > 1 > sets["letter"][-1]
    assert sets["shuttle"][0] > 1 > sets["shuttle"][-1]
    yield "`LinearSVC` on pendigits, satimage, usps and ijcnn1, and with 100 vectors"
    starts = [
        row["loops"] for row in rows("first-result")
        if row["what"].startswith(("run", "fit, default", "train"))
    ]  # fmt: skip
    yield f"The first result takes {spread(starts, whole)} seconds"
    used = value("memory", "MiB more", what="fit_stream from a file", rows=10**7, B=100)
    yield f"and {whole(used)} MiB for ten million rows from a file"
