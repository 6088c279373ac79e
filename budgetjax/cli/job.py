"""What is to be learned, whatever learns it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from budgetjax.cli import data, targets


class Job(NamedTuple):
    """A file to learn from, and the options of all learners.

    Attributes:
      source: the examples, as `budgetjax.stream.Batches`.
      about: what is known of the targets.
      learner: name of the learner, as `--learner` takes it, or None for the usual one.
      settings: arguments of the learner by name.
      gamma: gamma of the kernel; None for the usual one.
      standardise: whether to scale the features.
      penalty: penalty of errors; None for the usual one.
      seed: seed of what draws.
      say: prints a line of the report, from its name and its text.
      progress: whether to show a bar.
    """

    source: Any
    about: targets.Look
    learner: str | None
    settings: dict[str, Any]
    gamma: float | None
    standardise: bool
    penalty: float | None
    seed: int
    say: Callable[[str, str], None]
    progress: bool

    def say_data(self) -> None:
        """The lines about the file."""
        width = data.counted(self.source.num_features, "feature")
        self.say("data", f"{self.source.name}, {width}")
        self.say("target" if self.about.labels is None else "classes", self.about.text)
        every = "every feature to mean 0 and deviation 1"
        self.say("scaling", every if self.standardise else "none")

    def say_learner(self, name: str, about: str) -> None:
        """The line about the learner."""
        extra = "".join(f", {key} {value}" for key, value in self.settings.items())
        self.say("learner", f"{name.replace('_', '-')}{about}{extra}")
