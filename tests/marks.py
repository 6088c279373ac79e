"""Which cases are slow is said where they are listed: what a case shows in more time.

A quick case shows it in less. A whole test is marked by `@pytest.mark.slow`.
"""

import pytest


def slow(*cases):
    """These cases of a table, marked: `parametrize("n", [1, *slow(10, 100)])`."""
    return [marked(case) for case in cases]


def marked(case):
    mark = pytest.mark.slow
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, mark])
    # Not a row of a table, which is a tuple with names.
    return pytest.param(*(case if type(case) is tuple else [case]), marks=mark)


def first_quick(cases):
    """These cases, of which the first shows in less time what all of them show."""
    first, *others = cases
    return [first, *slow(*others)]


def pairs(first, second):
    """Every pair of names of two tables; quick are those with the first of either."""
    first, second = list(first), list(second)
    return [
        pytest.param(
            one,
            other,
            id=f"{one}-{other}",
            marks=() if one == first[0] or other == second[0] else pytest.mark.slow,
        )
        for one in first
        for other in second
    ]
