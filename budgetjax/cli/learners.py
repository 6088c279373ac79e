"""The job of a command, and empty models for it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click
import jax
import numpy as np

from budgetjax import _checks, registry
from budgetjax._errors import ArgumentError, InputError, names_errors
from budgetjax._record import fields_of
from budgetjax.cli import options, reading, reports, targets
from budgetjax.online import defaults
from budgetjax.online.defaults import Choice
from budgetjax.online.learner import Learner
from budgetjax.solvers.solver import Solver
from budgetjax.stream.batches import Batches
from budgetjax.tables import encoding, scaling
from budgetjax.tables.encoding import Encoding

State = TypeVar("State")
# Settings that are not fields of a learner, but names: of a strategy, and of a loss.
NAMED = ("maintenance", "loss")
# Fields of learners whose values only Python has, and fields that have an option.
OBJECTS = ("optimizer", "kernel", "budget", "seed")
# Arguments of the run of a solver; linear ones have no cache.
RUN = ["max_steps", "cache_size"]
# Why some arguments in Python are no settings.
REFUSED = {
    "average": "a model file predicts by the last model",
    "optimizer": "only Python has objects of optax",
    "vectors": "only Python has arrays",
    **{name: f"it is the option --{name}" for name in ("budget", "gamma", "seed")},
}


class Job(NamedTuple):
    """A file to learn from, a summary of its targets, and the options of learners."""

    source: Batches
    about: targets.TargetSummary
    training: options.TrainOptions
    progress: bool = False

    @classmethod
    def of(
        cls,
        source: Batches,
        about: targets.TargetSummary,
        training: options.TrainOptions,
    ) -> "Job":
        """The job for these options, with weights of classes applied to the file."""
        if training.class_weight is not None:
            source = targets.apply_class_weights(source, about, training.class_weight)
            source = reading.drop_weightless(source)
        if source.texts and not training.standardise:
            wanted = "have numbers alone with --no-standardise"
            error = ArgumentError("X", wanted, f"texts in {source.texts[0]!r}")
            error.function = source.name
            raise error.advised("--ignore COLUMN leaves it out")
        progress = options.shows_progress(training.quiet)
        return cls(source, about, training, progress)

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
        usual = every if self.training.standardise else "none"
        if self.source.texts:
            usual = "every feature in units of its quartiles, with a code per text"
        self.say("scaling", scaling or usual)

    def say_learner(self, name: str, about: str) -> None:
        """The line about the learner of this name."""
        settings = self.training.settings.items()
        extra = "".join(f", {key} {value}" for key, value in settings)
        self.say("learner", f"{name}{about}{extra}")

    def choice(self, *, refits: bool) -> Choice:
        """The online learner and the arguments of its `init`."""
        labels = self.about.labels
        with usage_errors():
            return defaults.choose(
                self.learner(refits=refits),
                num_classes=None if labels is None else len(labels),
                seed=self.training.seed,
                refits=refits,
                **self.named,
            )

    @property
    def named(self) -> dict[str, Any]:
        """The settings that are not fields of the learner, but names."""
        settings = self.training.settings
        given = {name: str(settings[name]) for name in NAMED if name in settings}
        return {name: options.python_name(one) for name, one in given.items()}

    def learner(self, *, refits: bool) -> Learner:
        """The online learner with its settings; of several values the first."""
        name, settings = self.training.learner, self.training.settings
        labels = self.about.labels
        num_classes = None if labels is None else len(labels)
        kind = type(defaults.learner_of(None, num_classes, refits=refits))
        if name is not None:
            kind = registry.learner_classes()[options.python_name(name)]
            _check_targets(name, kind, num_classes)
        name, free = name_of(kind), settings_of(kind)
        for key in settings:
            if key in REFUSED and key not in free:
                raise click.UsageError(f"--set {key}: {REFUSED[key]}.")
        check_settings(name, settings, free)
        with usage_errors():
            return _make_learner(kind, settings)

    def fit_names(self, X: Any) -> Encoding:
        """The codes of names in these rows, with numbers in units of quartiles."""
        with names_errors(self.source.name):
            return encoding.fit(X, 0, more_to_come=True)

    def default_gamma(self, X: np.ndarray, *, scaled: bool = False) -> float:
        """The default gamma of these rows."""
        if not scaled:
            known = scaling.Scaling.empty(X.shape[1])
            # A value that is not finite is reported, with its place, when it is
            # learned.
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


def name_of(kind: type[Learner] | type[Solver]) -> str:
    """The name of a learner or a solver in the spelling of `--learner`."""
    return options.option_name(registry.name_of(kind))


def settings_of(kind: type[Learner] | type[Solver]) -> list[str]:
    """What `--set` can give a learner or a solver: its fields, and what has a name."""
    fields = [field.name for field in fields_of(kind) if field.name not in OBJECTS]
    if issubclass(kind, Solver):
        # Its penalty is the option.
        own = [name for name in fields if name != "penalty"]
        return own + RUN[: 1 if kind.linear else 2]
    named = ["maintenance"] * ("maintenance" in kind.takes) + ["loss"]
    return [*dict.fromkeys([*fields, *named])]


def check_settings(
    learner: str, settings: Mapping[str, Any], free: Sequence[str]
) -> None:
    """Raises for a setting that is not one of the `free` ones."""
    for name, given in settings.items():
        if name not in free:
            raise click.UsageError(
                f"--set: settings of {learner} must be among {', '.join(free)}, got "
                f"{name}={given}"
            )


def _check_targets(name: str, kind: type[Learner], num_classes: int | None) -> None:
    """Raises if this learner cannot learn the targets."""
    asked = "num_outputs" if num_classes is None else "num_classes"
    if num_classes == 2 or asked in kind.takes:
        return
    able = [
        name_of(one)
        for one in registry.learner_classes().values()
        if asked in one.takes
    ]
    what = "numbers" if num_classes is None else f"{num_classes} classes"
    raise click.UsageError(
        f"--learner must be one of {', '.join(able)} for {what}, got {name}"
    )


def _make_learner(kind: type[Learner], settings: Mapping[str, Any]) -> Learner:
    """The learner with the first values of its fields, after a check of all values."""
    fields = {field.name: field for field in fields_of(kind) if field.name not in NAMED}
    given = {name: settings[name] for name in fields if name in settings}
    swept = {name: one for name, one in given.items() if isinstance(one, list)}
    for name, field in fields.items():
        if name in swept and field.metadata.get("static"):
            wanted = "be one value, as a part of the compiled program"
            raise ArgumentError(name, wanted, ", ".join(map(str, swept[name])))
        if name not in given and field.default is dataclasses.MISSING:
            raise ArgumentError(name, "be given, as it has no default", "nothing")
    learner = kind(**given | {name: values[0] for name, values in swept.items()})
    for name, values in swept.items():
        for value in values:
            dataclasses.replace(learner, **{name: value})
    return learner


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Errors about arguments become those of a wrong command line."""
    try:
        yield
    except ArgumentError as error:
        error.function = "--set"
        raise click.UsageError(str(error)) from error


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
