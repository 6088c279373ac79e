"""Test accuracy at equal budgets on the sets of the JMLR paper's Table 3.

    python benchmarks/papers jmlr_table3
    python benchmarks/papers jmlr_table3 --data pendigits --orders 1

Wang, Crammer and Vucetic (2012), "Breaking the curse of kernelization", Table 3: one
pass on a budget of 100 and of 500. Here: one pass of Pegasos with merging and of AROW,
and refits of the former, of its coefficients alone and with a metric. The protocol is
that of `accuracy.py`, and rows that it has are taken from its results: means over three
orders, of 100,000 rows of covertype and 20,000 of the checkerboard without noise. DNA
is missing; `jmlr_table3_large` has the full large sets.

The paper's own figures are beside these in `benchmarks/published.md`. A set of 5,000
rows takes four minutes per order on a busy core.
"""

import argparse

import accuracy
import measure

NEW = ("pendigits", "satimage", "shuttle")
OTHERS = ("a9a", "letter", "usps", "ijcnn1", "covtype-100k", "checkerboard")
BUDGETS = (100, 500)
METHODS = (
    "Pegasos, merge",
    "AROW",
    "Pegasos, merge, refit by default",
    "Pegasos, merge, metric",
)
OUTPUT = measure.RESULTS / "papers" / "jmlr_table3.json"


def kept(rows, names) -> list:
    """The rows of the table."""
    return [
        row
        for row in rows
        if row["data"] in names
        and row["B"] in BUDGETS
        and row["method"] in METHODS
        and row["model"] == "last"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Table 3 of the JMLR paper's sets")
    parser.add_argument("--data", nargs="+", choices=NEW, default=list(NEW))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--orders", type=int, default=1)
    given = parser.parse_args()
    found = accuracy.saved(OUTPUT)
    known = {(row["data"], row["B"], row["method"]) for row in found}
    for row in accuracy.compare(
        given.data, BUDGETS, given.methods, False, given.orders, None, known
    ):
        accuracy.updated(OUTPUT, row | {"orders": given.orders}, accuracy.place)
    rows = kept(accuracy.saved(measure.RESULTS / "accuracy.json"), OTHERS)
    rows += kept(accuracy.saved(OUTPUT), NEW)
    print(accuracy.table(rows))


if __name__ == "__main__":
    main()
