"""The recipe of a command, from its options."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import click

from budgetjax import registry
from budgetjax._errors import ArgumentError
from budgetjax._record import fields_of
from budgetjax.cli import options
from budgetjax.online import defaults
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import strategies
from budgetjax.solvers.solver import Solver
from budgetjax.training.recipe import Recipe

Kind = type[OnlineLearner] | type[Solver]

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


def make_recipe(
    *, learner: str | None, settings: Mapping[str, Any], **choices: Any
) -> Recipe:
    """The recipe of a learner with these settings, of several values the first.

    `choices` are its other fields. A solver is not part of it.
    """
    strategy, known = choices["maintenance"], strategies()
    if strategy is not None and strategy not in known:
        shown = ", ".join(map(options.option_name, known))
        raise click.UsageError(f"--maintenance must be one of {shown}, got {strategy}.")
    with usage_errors("train"):
        recipe = Recipe(**choices)
        # A loss has a name.
        _ = recipe.losses
    if learner in options.solver_names() or (learner is None and not settings):
        return recipe
    made = _make_learner(_find_kind(learner, recipe), settings)
    with usage_errors("train"):
        return dataclasses.replace(recipe, learner=made)


def _find_kind(name: str | None, recipe: Recipe) -> type[OnlineLearner]:
    """The learner of this name, or the default one, after a check of what it learns."""
    if name is None:
        asked = None if recipe.regression else 2
        return type(defaults.learner_of(None, asked, refits=recipe.refit))
    known, takes = registry.learner_classes(), recipe.family.takes
    kind = known[options.python_name(name)]
    if not takes(kind):
        able = ", ".join(name_of(one) for one in known.values() if takes(one))
        what = "numbers" if recipe.regression else "classes"
        raise click.UsageError(
            f"--learner must be one of {able} for {what}, got {name}"
        )
    return kind


def _make_learner(
    kind: type[OnlineLearner], settings: Mapping[str, Any]
) -> OnlineLearner:
    """The learner with the first values of its fields, after a check of all values."""
    free = settings_of(kind)
    for name in settings:
        if name in REFUSED and name not in free:
            raise click.UsageError(f"--set {name}: {REFUSED[name]}.")
    check_settings(kind, settings)
    swept = {name: one for name, one in settings.items() if isinstance(one, list)}
    with usage_errors():
        for field in fields_of(kind):
            if field.name in swept and field.metadata.get("static"):
                wanted = "be one value, as a part of the compiled program"
                got = ", ".join(map(str, swept[field.name]))
                raise ArgumentError(field.name, wanted, got)
            if field.name not in settings and field.default is dataclasses.MISSING:
                wanted = "be given, as it has no default"
                raise ArgumentError(field.name, wanted, "nothing")
        firsts = {name: values[0] for name, values in swept.items()}
        learner = kind(**{**settings, **firsts})
        for name, values in swept.items():
            for value in values:
                dataclasses.replace(learner, **{name: value})
        return learner


def name_of(kind: Kind) -> str:
    """The name of a learner or a solver in the spelling of `--learner`."""
    return options.option_name(registry.name_of(kind))


def settings_of(kind: Kind) -> list[str]:
    """What `--set` can give: fields of a learner or a solver, and how long it runs."""
    fields = [field.name for field in fields_of(kind) if field.name not in OBJECTS]
    if issubclass(kind, Solver):
        # Its penalty is the option.
        own = [name for name in fields if name != "penalty"]
        return own + RUN[: 1 if kind.linear else 2]
    # Its loss is an option, as that of the refit.
    return [name for name in fields if name != "loss"]


def check_settings(kind: Kind, settings: Mapping[str, Any]) -> None:
    """Raises for a setting that a learner or a solver does not have."""
    free = settings_of(kind)
    for name, given in settings.items():
        if name not in free:
            raise click.UsageError(
                f"--set: settings of {name_of(kind)} must be among {', '.join(free)}, "
                f"got {name}={given}"
            )


@contextlib.contextmanager
def usage_errors(option: str = "--set") -> Iterator[None]:
    """Errors about arguments become those of a wrong command line."""
    try:
        yield
    except ArgumentError as error:
        error.function = option
        raise click.UsageError(str(error)) from error
