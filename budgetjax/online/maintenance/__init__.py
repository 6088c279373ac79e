"""Maintenance: who leaves, or is merged or projected, when the budget is full."""

from budgetjax.online.maintenance.merging import Merge, MergeBestPair, MultiMerge
from budgetjax.online.maintenance.projection import (
    Project,
    ProjectOntoNearest,
    ProjectOntoNewcomer,
)
from budgetjax.online.maintenance.removal import (
    RemoveLargestMargin,
    RemoveOldest,
    RemoveRandom,
    RemoveSmallest,
    Unbudgeted,
)
from budgetjax.online.maintenance.strategy import Maintenance, started

# By the names that estimators and commands know them by.
STRATEGIES = {
    "merge": Merge,
    "merge_best_pair": MergeBestPair,
    "multi_merge": MultiMerge,
    "project": Project,
    "project_onto_nearest": ProjectOntoNearest,
    "project_onto_newcomer": ProjectOntoNewcomer,
    "remove_largest_margin": RemoveLargestMargin,
    "remove_oldest": RemoveOldest,
    "remove_random": RemoveRandom,
    "remove_smallest": RemoveSmallest,
    "unbudgeted": Unbudgeted,
}

__all__ = [
    "STRATEGIES",
    "Maintenance",
    "Merge",
    "MergeBestPair",
    "MultiMerge",
    "Project",
    "ProjectOntoNearest",
    "ProjectOntoNewcomer",
    "RemoveLargestMargin",
    "RemoveOldest",
    "RemoveRandom",
    "RemoveSmallest",
    "Unbudgeted",
    "started",
]
