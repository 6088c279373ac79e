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

__all__ = [
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
