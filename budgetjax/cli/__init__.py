"""The command line: `train`, `predict`, `sweep`, `learners`, `info`, `plot`, `export`.

Modules here import heavy packages (JAX, pyarrow, matplotlib) inside the functions that
need them, so that `--help` and wrong options are answered at once.
"""

import signal
import sys
import threading
from typing import Any

# The exit code of a program that Ctrl-C ended.
INTERRUPTED = 130
# Seconds until Ctrl-C is raised again.
SOON = 0.05


def main() -> None:
    """Runs the command that `sys.argv` names, and exits.

    The exit code is 0, or 1 for bad data and models, 2 for a wrong command line, 130
    after Ctrl-C. Errors are one line on stderr that starts with `budgetjax: error:`.
    """
    sys.unraisablehook = _unraisable
    try:
        _run()
    except KeyboardInterrupt:
        # Raised during imports, before a command could handle it.
        print("\nbudgetjax: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _run() -> None:
    from budgetjax import _compile_cache

    _compile_cache.set_environment()
    try:
        from budgetjax.cli.commands import budgetjax
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        from budgetjax._errors import MissingModule

        missing = MissingModule("click", "cli")
        missing.function = "the command line"
        sys.exit(f"budgetjax: error: {missing}")
    budgetjax(prog_name="budgetjax")


def _unraisable(unraisable: Any) -> None:
    """Raises Ctrl-C again after it was lost.

    Python drops exceptions in callbacks of its garbage collector, and JAX has one.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    timer = threading.Timer(SOON, signal.raise_signal, [signal.SIGINT])
    if hasattr(signal, "pthread_kill"):
        # The main thread may be waiting.
        main_thread = threading.main_thread().ident
        timer = threading.Timer(SOON, signal.pthread_kill, [main_thread, signal.SIGINT])
    timer.daemon = True
    timer.start()
