"""What is to be learned, whatever learns it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from budgetjax.cli import data, learners, targets


class Job(NamedTuple):
    """A file to learn from, what is known of its targets, and the learners' options.

    None is the usual value. If it `fills`, a NaN stands for the mean of its feature;
    `say` prints a line of the report, from its name and its text.
    """

    source: Any
    about: targets.Look
    learner: str | None
    settings: dict[str, Any]
    gamma: float | None
    standardise: bool
    fills: bool
    penalty: float | None
    seed: int
    say: Callable[[str, str], None]
    progress: bool

    def default_gamma(self, X: np.ndarray) -> float:
        """The default gamma of these first rows."""
        from budgetjax import scaling

        known = scaling.Scaling.empty(X.shape[1], fills=self.fills)
        # A number that is not finite is reported, with its place, when it is learned.
        X = known.filled(X)
        X = X[np.all(np.isfinite(X), axis=1)]
        if self.standardise:
            X = known.updated(X, where=self.source.name).apply(X)
        return learners.default_gamma(self.source.name, X)

    def say_data(self) -> None:
        """The lines about the file."""
        width = data.counted(self.source.num_features, "feature")
        self.say("data", f"{self.source.name}, {width}")
        self.say("target" if self.about.labels is None else "classes", self.about.text)
        every = "every feature to mean 0 and deviation 1"
        every += ", what is missing to the mean" if self.fills else ""
        self.say("scaling", every if self.standardise else "none")

    def say_learner(self, name: str, about: str) -> None:
        """The line about the learner."""
        extra = "".join(f", {key} {value}" for key, value in self.settings.items())
        self.say("learner", f"{name.replace('_', '-')}{about}{extra}")
