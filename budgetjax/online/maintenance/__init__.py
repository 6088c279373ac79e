"""Maintenance: how a full budget makes room, by removal, merging or projection."""

import re

from budgetjax import _record
from budgetjax.online.maintenance import measured, merging, projection, removal
from budgetjax.online.maintenance.merging import Merge as Merge
from budgetjax.online.maintenance.projection import Project as Project
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
        for name, kind in sorted(_record.records.items())
        if issubclass(kind, Maintenance)
        and kind.is_complete()
        and (name in public or not kind.__module__.startswith("budgetjax."))
    }
