"""The job of a command, and empty models for it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click
import jax
import numpy as np

from budgetjax import _checks, scaling
from budgetjax._errors import ArgumentError, InputError, names_errors
from budgetjax.cli import options, reading, reports, targets
from budgetjax.online import choices
from budgetjax.online.choices import Choice
from budgetjax.stream.batches import Batches

State = TypeVar("State")


class Job(NamedTuple):
    """A file to learn from, a summary of its targets, and the options of learners.

    If it `fills`, the mean of a feature replaces a NaN.
    """

    source: Batches
    about: targets.TargetSummary
    training: options.TrainOptions
    fills: bool = False
    progress: bool = False

    @classmethod
    def of(
        cls,
        source: Batches,
        about: targets.TargetSummary,
        columns: options.Columns,
        training: options.TrainOptions,
    ) -> "Job":
        """The job for these options, with weights of classes applied to the file."""
        if training.class_weight is not None:
            source = targets.apply_class_weights(source, about, training.class_weight)
            source = reading.drop_weightless(source)
        fills = columns.missing is not None
        progress = options.shows_progress(training.quiet)
        return cls(source, about, training, fills, progress)

    def say(self, name: str, text: str) -> None:
        """Prints a line of the report."""
        if not self.training.quiet:
            reports.echo(reports.format_line(name, text))

    def say_data(self, scaling: str | None = None) -> None:
        """The lines about the file; `scaling` is the text, if it is not the usual."""
        width = reports.with_count(self.source.num_features, "feature")
        self.say("data", f"{self.source.name}, {width}")
        self.say("target" if self.about.labels is None else "classes", self.about.text)
        every = "every feature to mean 0 and deviation 1"
        every += ", what is missing to the mean" if self.fills else ""
        usual = every if self.training.standardise else "none"
        self.say("scaling", scaling or usual)

    def say_learner(self, name: str, about: str) -> None:
        """The line about the learner."""
        settings = self.training.settings.items()
        extra = "".join(f", {key} {value}" for key, value in settings)
        self.say("learner", f"{name.replace('_', '-')}{about}{extra}")

    def choice(self, *, refits: bool) -> Choice:
        """The online learner and its arguments; lists of settings are swept."""
        name, settings = self.training.learner, self.training.settings
        if "average" in settings:
            raise click.UsageError(
                "--set average: a model file predicts by the last model."
            )
        labels = self.about.labels
        try:
            with names_errors("--learner, --set"):
                return choices.choose(
                    name and name.replace("-", "_"),
                    to_python_names(settings),
                    num_classes=None if labels is None else len(labels),
                    seed=self.training.seed,
                    refits=refits,
                )
        except ArgumentError as error:
            if error.argument == "algorithm":
                error.argument = "the learner"
            raise click.UsageError(str(error)) from error

    def default_gamma(self, X: np.ndarray, *, scaled: bool = False) -> float:
        """The default gamma of these rows."""
        if not scaled:
            known = scaling.Scaling.empty(X.shape[1], fills=self.fills)
            # A value that is not finite is reported, with its place, when it is
            # learned.
            X = known.filled(X)
            X = X[np.all(np.isfinite(X), axis=1)]
            if self.training.standardise:
                with names_errors(self.source.name):
                    X = known.updated(X).apply(X)
        try:
            return scaling.default_gamma(X)
        except ValueError as error:
            raise InputError(
                f"{self.source.name}: --gamma scale needs rows that differ: {error}"
            ) from error


def to_python_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with words in Python's spelling."""
    return {
        key: given.replace("-", "_") if isinstance(given, str) else given
        for key, given in settings.items()
    }


def init_model(what: str, init: Callable[[], State], more: int = 0) -> State:
    """An empty model, made by one program after a check of the memory.

    `what` names it in the message, and `more` is the number of bytes for its training.
    """
    leaves = jax.tree.leaves(jax.eval_shape(init))
    needed = more + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    check_memory(f"for {what}", needed)
    return jax.jit(init)()


def check_memory(what: str, needed: int) -> None:
    """Raises if less memory is free."""
    if needed > (memory := _checks.host_memory()):
        raise MemoryError(
            f"{what}, which needs {needed / 2**30:,.1f} GiB; "
            f"{memory / 2**30:,.1f} GiB are free"
        )
