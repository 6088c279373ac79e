"""Maintenance: how a full budget makes room, by removal, merging or projection."""

from typing import Any

import jax
from jax.typing import ArrayLike

from budgetjax import _checks
from budgetjax.online.maintenance.merging import Merge, MergeBestPair, MultiMerge
from budgetjax.online.maintenance.projection import (
    DelayedProject,
    Project,
    ProjectOntoCandidate,
    ProjectOntoNearest,
)
from budgetjax.online.maintenance.removal import (
    RemoveFewestErrors,
    RemoveLargestMargin,
    RemoveOldest,
    RemoveRandom,
    RemoveSmallest,
    Unbudgeted,
)
from budgetjax.online.maintenance.strategy import Maintenance

# Strategies by the names that estimators and the command line use.
STRATEGIES = {
    "delayed_project": DelayedProject,
    "merge": Merge,
    "merge_best_pair": MergeBestPair,
    "multi_merge": MultiMerge,
    "project": Project,
    "project_onto_nearest": ProjectOntoNearest,
    "project_onto_candidate": ProjectOntoCandidate,
    "remove_fewest_errors": RemoveFewestErrors,
    "remove_largest_margin": RemoveLargestMargin,
    "remove_oldest": RemoveOldest,
    "remove_random": RemoveRandom,
    "remove_smallest": RemoveSmallest,
    "unbudgeted": Unbudgeted,
}


def init_maintenance(
    where: str, strategy: Maintenance | None, shared: dict[str, Any], seed: ArrayLike
) -> Maintenance:
    """Starts the strategy of a state with these fields; errors name `where`.

    None merges, or projects if the kernel is not Gaussian, since nothing can be merged.
    """
    kernel, expansion = shared["kernel"], shared["expansion"]
    if strategy is None:
        strategy = Merge() if kernel.gaussian else Project()
    if not isinstance(strategy, Maintenance):
        raise ValueError(
            f"{where}: maintenance must be a strategy such as RemoveOldest(), got "
            f"{strategy!r}"
        )
    seed = _checks.seed(where, seed)
    rows = expansion.ages.shape[0]
    if rows * rows > _checks.SMALL // 8:
        # Checked before a matrix of all pairs is allocated. Small ones skip the slow
        # tracing.
        arrays = jax.eval_shape(strategy.start, kernel, expansion, seed)
        _checks.check_memory(where, rows - 1, arrays)
    return strategy.start(kernel, expansion, seed)
