"""Test accuracy at equal budgets on three more sets of the JMLR paper's Table 3.

Wang, Crammer and Vucetic (2012), "Breaking the curse of kernelization", Table 3: one
pass on a budget of 100 and of 500. Here: one pass of Pegasos with merging and of AROW,
and refits of the former, of its coefficients alone and with a metric. The protocol is
that of `tasks/accuracy.py`, which has the other sets, in one order; DNA is missing, and
`jmlr_table3_large` has the full large sets. The paper's own figures are beside these in
`published.md`. A set of 5,000 rows takes four minutes per order on a busy core.
"""

import functools
from collections.abc import Iterator

from runner import Case, given
from tasks import accuracy

METHODS = (
    "Pegasos, merge",
    "AROW",
    "Pegasos, merge, refit by default",
    "Pegasos, merge, metric",
)


def measured(name: str, budget: int, method: str, orders: int) -> list[accuracy.Row]:
    """The rows of a method, with the number of orders."""
    rows = accuracy.measured(name, budget, method, orders)
    return [row | {"orders": orders} for row in rows]


def cases() -> Iterator[Case]:
    """All sets, budgets and methods."""
    (orders,) = given("orders", 1)
    for name in ("pendigits", "satimage", "shuttle"):
        for budget in (100, 500):
            for method in METHODS:
                key = {"data": name, "B": budget, "method": method}
                run = functools.partial(measured, name, budget, method, orders)
                yield Case(key, run)
