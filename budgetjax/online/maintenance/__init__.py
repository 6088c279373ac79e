"""Maintenance: how a full budget makes room, by removal, merging or projection."""

import re
from typing import Any

from jax.typing import ArrayLike

from budgetjax import _checks, _pytree
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.online.maintenance import measured, merging, projection, removal
from budgetjax.online.maintenance.merging import Merge
from budgetjax.online.maintenance.projection import Project
from budgetjax.online.maintenance.strategy import Maintenance


def strategies() -> dict[str, type[Maintenance]]:
    """Strategies by the names of estimators, such as `remove_oldest`.

    These are all that need no argument: the public ones, and those of
    `budgetjax.register`.
    """
    rooms = measured, merging, projection, removal
    public = {name for room in rooms for name in room.__all__}
    return {
        re.sub(r"\B(?=[A-Z])", "_", name).lower(): kind
        for name, kind in sorted(_pytree.records.items())
        if issubclass(kind, Maintenance)
        and kind.is_complete()
        and (name in public or not kind.__module__.startswith("budgetjax."))
    }


def init_maintenance(
    strategy: Maintenance | None, shared: dict[str, Any], seed: ArrayLike
) -> Maintenance:
    """The field `maintenance` of a new state. Errors name `NAME.init`.

    Args:
      strategy: for example `budgetjax.RemoveOldest()`. None merges, or projects if the
        kernel is not Gaussian, since nothing can be merged.
      shared: the other fields of the state, those of `budgetjax.init_fields`.
      seed: an integer, or a key of `jax.random`.
    """
    kernel, expansion = shared["kernel"], shared["expansion"]
    if strategy is None:
        strategy = Merge() if kernel.gaussian else Project()
    with names_errors(f"{shared['algorithm'].value}.init"):
        if not isinstance(strategy, Maintenance):
            raise ArgumentError(
                "maintenance", "be a strategy such as RemoveOldest()", f"{strategy!r}"
            )
        seed = _checks.seed(seed)
    return strategy.start(kernel, expansion, seed)
