"""What an error says, by its fields: the wording of a check is tested where it is."""

import pytest

from budgetjax._errors import ArgumentError


def refused(call, argument, expected="", got="", function=None):
    """The error of a call that an argument makes fail.

    Args:
      call: a function without arguments.
      argument: its name, all of it.
      expected, got: texts that are in these fields.
      function: who says it; None for anyone.
    """
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        call()
    error = raised.value
    # No other class: an internal error of JAX or NumPy is not what was promised.
    assert isinstance(error, ArgumentError), repr(error)
    assert error.argument == argument
    assert expected in error.expected, error.expected
    assert got in error.got, error.got
    assert error.function if function is None else error.function == function
    return error
