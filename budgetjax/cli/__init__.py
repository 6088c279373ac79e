"""The command line: `budgetjax train`, `predict`, `sweep`, `info` and `plot`.

Modules here import what is heavy (JAX, pyarrow, matplotlib) inside the functions that
need it, so that `--help` and a wrong option are answered at once.
"""

import sys


def main() -> None:
    """Runs the command that `sys.argv` names, and exits.

    The exit code is 0, or 1 for bad data and models, 2 for a wrong command line, 130
    after Ctrl-C. Errors are one line on stderr that starts with `budgetjax: error:`.
    """
    try:
        from budgetjax.cli.commands import budgetjax
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(
            "budgetjax: error: the command line needs click: "
            "pip install 'budgetjax[cli]'"
        )
    budgetjax(prog_name="budgetjax")
