"""Edits: what a round may change in a support set, and how it is written.

A learner returns the new contents of slots, terms that are added to many rows, and
factors. `write` stores them, one row at a time, so a compiled loop never copies the
matrix of support vectors.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from budgetjax import _platform
from budgetjax._errors import ArgumentError
from budgetjax._shapes import Flag, Index, PerRow, Scalar
from budgetjax.online import averages
from budgetjax.online.averages import Average
from budgetjax.online.slots import FREE, NOWHERE, put_rows, select
from budgetjax.online.support_set import Candidate, Expansion

Kind = TypeVar("Kind")

# Stored coefficients are multiplied only if the scale falls below this value.
SMALLEST_SCALE = 2.0**-20


class Row(NamedTuple):
    """The new content of one slot; nothing changes if `slot` is `NOWHERE`.

    The age `FREE`, with zeros elsewhere, frees a slot.
    """

    slot: Index
    vector: Float[Array, " features"]
    square: Scalar
    term: Float[Array, " both"]
    age: Index


class RankOneUpdate(NamedTuple):
    """A term that is distributed over the support vectors, a rank-one change.

    The `weights` are the share that each slot receives, 0 for free slots.
    """

    weights: PerRow
    term: Float[Array, " both"]


class Edits(NamedTuple):
    """The changes of the support set in a round, in this order.

    Attributes:
      rescale_factor: the factor of all stored coefficients, by which the scale is
        divided, or None. It is a power of two, so nothing is rounded.
      rank_one_updates: the terms added to many rows.
      rows: the slots to write; the last one is the example's own.
      shrink: the factor of the model afterwards, including the example's own term, or
        None.
      scale_sum: the sum of the scales that brings the sums up to date before all edits.
        The engine sets it if iterates are averaged.
    """

    rows: tuple[Row, ...]
    rank_one_updates: tuple[RankOneUpdate, ...] = ()
    shrink: Scalar | None = None
    rescale_factor: Scalar | None = None
    scale_sum: Scalar | None = None


def check_edits(
    method: str, kind: type[Kind], returned: object, before: Any, expansion: Expansion
) -> tuple[Kind, Edits]:
    """`returned`, after a check that it is a record of this kind and edits.

    The record has the leaves of the one `before`, and the edits fit the expansion. All
    that is checked is known while tracing.
    """
    got = type(returned).__name__
    if type(returned) is tuple:
        match returned:
            case (record, Edits() as edits) if isinstance(record, kind):
                check_same_leaves(f"the {kind.__name__} of {method}", record, before)
                return record, _check_shapes(method, edits, expansion)
        got = f"({', '.join(type(part).__name__ for part in returned)})"
    raise ArgumentError(method, f"return ({kind.__name__}, Edits)", got)


def check_same_leaves(name: str, after: Any, before: Any) -> None:
    """Raises unless a record has the shapes and dtypes of the one before.

    A loop or a branch would say so far from what is wrong.
    """
    structures = jax.tree.structure(before), jax.tree.structure(after)
    if structures[0] != structures[1]:
        raise ArgumentError(name, f"keep its structure {structures[0]}", structures[1])
    leaves = zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    )
    for (path, old), new in leaves:
        wanted, got = map(_describe, (old, new))
        if wanted != got:
            place = jax.tree_util.keystr(path)
            raise ArgumentError(f"{place} in {name}", f"stay {wanted}", got)


def _describe(value: Any) -> str:
    """Dtype and shape as text, such as `float32[3]`."""
    return f"{jnp.result_type(value)}[{','.join(map(str, jnp.shape(value)))}]"


def _check_shapes(method: str, edits: Edits, expansion: Expansion) -> Edits:
    """The edits with slots of int32, if all else has the shapes and dtypes of slots."""
    empty = empty_row(expansion, jnp.int32(NOWHERE))
    # Any integer is a slot: `argmax` gives an int64 with x64.
    rows = tuple(
        row._replace(slot=jnp.asarray(row.slot, jnp.int32))
        if jnp.issubdtype(jnp.result_type(row.slot), jnp.integer)
        else row
        for row in edits.rows
    )
    for i, row in enumerate(rows):
        check_same_leaves(f"rows[{i}] of the edits of {method}", row, empty)
    like = RankOneUpdate(expansion.squares, empty.term)
    for i, one in enumerate(edits.rank_one_updates):
        check_same_leaves(f"rank_one_updates[{i}] of the edits of {method}", one, like)
    return edits._replace(rows=rows)


def check_candidate(candidate: Candidate, expansion: Expansion) -> None:
    """Raises unless the coefficients of a candidate are those of a slot."""
    wanted, got = expansion.coefficients[0], candidate.coefficients
    if _describe(got) != _describe(wanted):
        name = "the candidate's coefficients"
        raise ArgumentError(name, f"be {_describe(wanted)}", _describe(got))


def stored_row(expansion: Expansion, slot: Index) -> Row:
    """The content of this slot, with its sums up to date."""
    vector, square = expansion.vectors[slot], expansion.squares[slot]
    return Row(slot, vector, square, stored_term(expansion, slot), expansion.ages[slot])


def stored_term(expansion: Expansion, slot: Index) -> Float[Array, " both"]:
    """The term of the vector in this slot, with its sums up to date."""
    stored, average = expansion.coefficients_and_sums[slot], expansion.average
    return (
        stored if average is None else averages.add_to_sums(stored, average.scale_sum)
    )


def candidate_term(expansion: Expansion, candidate: Candidate) -> Float[Array, " both"]:
    """The candidate's term; its sums are 0, since no earlier model has it."""
    if expansion.average is None:
        return candidate.coefficients
    nothing = jnp.zeros_like(candidate.coefficients)
    return jnp.concatenate([candidate.coefficients, nothing])


def stack_rows(rows: tuple[Row, ...]) -> Row:
    """Several rows as one, whose fields have a first axis over them."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *rows)


def entering_row(expansion: Expansion, candidate: Candidate, slot: Index) -> Row:
    """The edit that puts the candidate into this slot."""
    own = candidate_term(expansion, candidate)
    return Row(slot, candidate.vector, candidate.square, own, candidate.age)


def empty_row(expansion: Expansion, slot: Index) -> Row:
    """The edit that frees this slot."""
    arrays = expansion.vectors, expansion.squares, expansion.coefficients_and_sums
    vector, square, term = (jnp.zeros_like(array[0]) for array in arrays)
    return Row(slot, vector, square, term, jnp.asarray(FREE, jnp.int32))


def rescale_terms(
    expansion: Expansion, terms: Float[Array, "*rows both"], factor: Scalar
) -> Float[Array, "*rows both"]:
    """The terms with multiplied coefficients; sums refer to true coefficients."""
    if expansion.average is None:
        return terms * factor
    coefficients, sums = jnp.split(terms, 2, axis=-1)
    return jnp.concatenate([coefficients * factor, sums], axis=-1)


def write(expansion: Expansion, edits: Edits) -> Expansion:
    """Writes the edits into the arrays; the scale does not change.

    Every write touches one row and reads none, since a select over the array, or a read
    next to the write, would copy it.
    """
    terms = expansion.coefficients_and_sums
    if edits.scale_sum is not None:
        terms = averages.add_to_sums(terms, edits.scale_sum)
    if edits.rescale_factor is not None:
        terms = rescale_terms(expansion, terms, edits.rescale_factor)
    for update in edits.rank_one_updates:
        terms = terms + update.weights[:, None] * update.term[None]
    slots = [row.slot for row in edits.rows]
    # The spare row stays free and 0, whatever the example is.
    rows = [
        select(row.slot == NOWHERE, empty_row(expansion, row.slot), row)
        for row in edits.rows
    ]
    ages = put_rows(expansion.ages, slots, [row.age for row in rows])
    active = (ages != FREE).astype(jnp.int32)
    count = functools.partial(jnp.sum, dtype=jnp.int32)
    return expansion._replace(
        vectors=put_rows(expansion.vectors, slots, [row.vector for row in rows]),
        squares=put_rows(expansion.squares, slots, [row.square for row in rows]),
        coefficients_and_sums=put_rows(terms, slots, [row.term for row in rows]),
        ages=ages,
        num_active=_platform.fold(jnp.add, count, active),
    )


def scale_after(scale: Scalar, edits: Edits) -> Scalar:
    """The scale after the edits."""
    if edits.shrink is not None:
        scale = scale * edits.shrink
    return scale if edits.rescale_factor is None else scale / edits.rescale_factor


def no_edits(like: Edits) -> Edits:
    """Edits of this structure that change nothing."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    rows = tuple(
        row._replace(slot=jnp.full_like(row.slot, NOWHERE)) for row in blank.rows
    )
    one = jax.tree.map(jnp.ones_like, blank)
    return blank._replace(
        rows=rows, shrink=one.shrink, rescale_factor=one.rescale_factor
    )


def rescale_factor(scale: Scalar) -> Scalar:
    """The factor of the stored coefficients that keeps the scale from underflow.

    It is 1 while the scale is in a safe range, otherwise the next lower power of two,
    so equal coefficients stay equal. The scale must be divided by it.
    """
    exponent = jnp.frexp(scale)[1]
    power = jnp.ldexp(jnp.ones_like(scale), jnp.maximum(exponent - 1, -126))
    return jnp.where(scale < SMALLEST_SCALE, power, 1).astype(scale.dtype)


def with_rescale(expansion: Expansion, edits: Edits) -> tuple[Edits, Scalar]:
    """Edits that keep a shrinking scale in a safe range, and their `rescale_factor`.

    The rows and rank-one updates of `edits` refer to the scale of `expansion`.
    """
    factor = rescale_factor(scale_after(expansion.scale, edits))

    def rescale(part):
        return part._replace(term=rescale_terms(expansion, part.term, factor))

    rows, updates = edits.rows, edits.rank_one_updates
    rows, updates = tuple(map(rescale, rows)), tuple(map(rescale, updates))
    edits = Edits(rows, updates, edits.shrink, factor, edits.scale_sum)
    return edits, factor


def fade(expansion: Expansion) -> Expansion:
    """The expansion with its sums ready for another round."""
    average = expansion.average
    if average is None:
        return expansion
    coefficients, sums = jnp.split(expansion.coefficients_and_sums, 2, axis=1)
    terms = jnp.concatenate([coefficients, average.fade_factor * sums], axis=1)
    return expansion._replace(coefficients_and_sums=terms, average=average.fade())


def with_sums(
    average: Average | None, edits: Edits, scale: Scalar, counted: Flag
) -> tuple[Edits, Average | None]:
    """The edits of a round, which bring the sums up to date, and the average after it.

    `scale` is the one after the edits.
    """
    if average is None:
        return edits, None
    edits = edits._replace(scale_sum=average.scale_sum)
    return edits, average._replace(scale_sum=jnp.where(counted, scale, 0))
