"""The recipe of a command, from its options."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from budgetjax import _checks, registry
from budgetjax._errors import ArgumentError
from budgetjax._record import fields_of
from budgetjax.cli import options
from budgetjax.online import defaults
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import strategies
from budgetjax.solvers.solver import Solver
from budgetjax.training.recipe import Recipe

# Fields of learners whose values only Python has, and fields that have an option.
OBJECTS = ("optimizer", "kernel", "budget", "seed")
# Arguments of the run of a solver; linear ones have no cache.
RUN = ["max_steps", "cache_size"]
OPTIONS = ("budget", "gamma", "seed", "maintenance", "loss", "penalty")
# Why some arguments in Python are no settings.
REFUSED = {
    "average": "a model file predicts by the last model",
    "optimizer": "only Python has objects of optax",
    "vectors": "only Python has arrays",
    **{name: f"it is the option --{name}" for name in OPTIONS},
}


def make_recipe(training: options.TrainOptions) -> Recipe:
    """The choices of a training, of several values the first."""
    known = {field.name for field in fields_of(Recipe)}
    given = {k: v for k, v in training._asdict().items() if k in known}
    given["learner"] = make_learner(training) or "auto"
    if training.maintenance is not None:
        name, names = training.maintenance, strategies()
        if name not in names:
            shown = ", ".join(map(options.option_name, names))
            raise click.UsageError(f"--maintenance must be one of {shown}, got {name}.")
    with usage_errors("train"):
        recipe = Recipe(**given)
        # A loss has a name.
        _ = recipe.losses
    return recipe


def make_learner(training: options.TrainOptions) -> OnlineLearner | None:
    """The learner of this name with its settings; None for the default."""
    name, settings = training.learner, training.settings
    if name is None and not settings:
        return None
    asked = None if training.regression else 2
    kind = type(defaults.learner_of(None, asked, refits=training.refit))
    if name is not None:
        kind = registry.learner_classes()[options.python_name(name)]
        if not kind.learns(asked):
            able = [
                name_of(one)
                for one in registry.learner_classes().values()
                if one.learns(asked)
            ]
            what = "numbers" if training.regression else "classes"
            raise click.UsageError(
                f"--learner must be one of {', '.join(able)} for {what}, got {name}"
            )
    free = settings_of(kind)
    for key in settings:
        if key in REFUSED and key not in free:
            raise click.UsageError(f"--set {key}: {REFUSED[key]}.")
    check_settings(name_of(kind), settings, free)
    with usage_errors():
        return _make_learner(kind, settings)


def name_of(kind: type[OnlineLearner] | type[Solver]) -> str:
    """The name of a learner or a solver in the spelling of `--learner`."""
    return options.option_name(registry.name_of(kind))


def settings_of(kind: type[OnlineLearner] | type[Solver]) -> list[str]:
    """What `--set` can give: fields of a learner or a solver, and how long it runs."""
    fields = [field.name for field in fields_of(kind) if field.name not in OBJECTS]
    if issubclass(kind, Solver):
        # Its penalty is the option.
        own = [name for name in fields if name != "penalty"]
        return own + RUN[: 1 if kind.linear else 2]
    # Its loss is an option, as that of the refit.
    return [name for name in fields if name != "loss"]


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


def _make_learner(
    kind: type[OnlineLearner], settings: Mapping[str, Any]
) -> OnlineLearner:
    """The learner with the first values of its fields, after a check of all values."""
    fields = {field.name: field for field in fields_of(kind)}
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
def usage_errors(option: str = "--set") -> Iterator[None]:
    """Errors about arguments become those of a wrong command line."""
    try:
        yield
    except ArgumentError as error:
        error.function = option
        raise click.UsageError(str(error)) from error


def check_memory(what: str, needed: int) -> None:
    """Raises if less memory is free."""
    if needed > (memory := _checks.host_memory()):
        raise MemoryError(
            f"{what}, which needs {needed / 2**30:,.1f} GiB; "
            f"{memory / 2**30:,.1f} GiB are free"
        )
