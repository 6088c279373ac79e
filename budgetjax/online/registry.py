"""Algorithms by name, for estimators, refits, model files and commands."""

import importlib
from typing import Any

from budgetjax import _checks
from budgetjax._pytree import Name
from budgetjax.online import ALGORITHMS
from budgetjax.online.algorithm import Algorithm

_registered: dict[str, Algorithm] = {}


def register(algorithm: Algorithm) -> None:
    """Registers your own algorithm by its name, for `refit` and the estimators.

    Model files can hold its states too, if `init` has a return annotation.

    Args:
      algorithm: a record whose name no algorithm of this package has.

    Raises:
      ValueError: if it is not an `Algorithm`, or the name is taken.

    Example:
      >>> import dataclasses
      >>> own = dataclasses.replace(bj.perceptron, name="my_perceptron")
      >>> bj.register(own)
    """
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"register: algorithm must be a budgetjax.Algorithm, got {algorithm!r}"
        )
    if _registered.get(algorithm.name, algorithm) != algorithm or (
        algorithm.name in ALGORITHMS
    ):
        raise ValueError(
            f"register: the name {algorithm.name!r} must be free, got one that is taken"
        )
    _registered[algorithm.name] = algorithm


def names() -> tuple[str, ...]:
    """The names of all algorithms, those of `register` last."""
    return (*ALGORITHMS, *_registered)


def named(where: str, name: Any) -> Algorithm:
    """The algorithm of this name."""
    if name not in names():
        raise ValueError(
            f"{where}: algorithm must be one of {', '.join(names())}, got {name!r}; "
            "budgetjax.register adds one of your own"
        )
    if name in _registered:
        return _registered[name]
    return getattr(importlib.import_module(f"budgetjax.online.{name}"), name)


def of_state(where: str, state: Any) -> Algorithm:
    """The algorithm whose state this is."""
    name = getattr(state, "algorithm", None)
    if not isinstance(name, Name) or not hasattr(state, "expansion"):
        raise ValueError(
            f"{where}: state must be one of an online algorithm, got "
            f"{_checks.kind_name(state)}"
        )
    return named(where, name.value)
