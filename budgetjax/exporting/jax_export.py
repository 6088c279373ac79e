"""Registers types of states and models with `jax.export`, which serializes them.

Types and functions have the same names as in model files.
"""

import contextlib
import json
from typing import Any

import jax.export
from jax.tree_util import Partial

from budgetjax import _record
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Function, Record
from budgetjax.saving import names, trees


def register_types() -> None:
    """Registers all types that can be in a state or a model."""
    known = (*_record.records, *names.OPTAX_STATES)
    kinds = {names.type_of(name): f"budgetjax.{name}" for name in known}
    kinds[Partial] = "jax.tree_util.Partial"
    kinds[Function] = "budgetjax.Function"
    for kind, name in kinds.items():
        assert kind is not None
        # Another package may have registered a type of JAX or optax.
        with contextlib.suppress(ValueError):
            if issubclass(kind, tuple):
                jax.export.register_namedtuple_serialization(kind, serialized_name=name)
            elif issubclass(kind, Record | Partial):
                jax.export.register_pytree_node_serialization(
                    kind,
                    serialized_name=name,
                    serialize_auxdata=_encode,
                    deserialize_auxdata=_decode,
                )


@names_errors("jax.export")
def _encode(auxiliary: Any) -> bytes:
    own: trees.Own = {}
    node, _ = trees.encode(auxiliary, own)
    for thing in own.values():
        wanted = "be of budgetjax.losses or optax.losses"
        raise ArgumentError("functions in a state", wanted, names.own_name(thing))
    return json.dumps(node).encode()


@names_errors("jax.export")
def _decode(data: bytes | bytearray) -> Any:
    decoder = trees.Decoder({}, "another version", {})
    return decoder.decode(json.loads(data))
