"""How many threads NumPy's linear algebra takes."""

import contextlib
import functools
from typing import Any


def one_thread() -> contextlib.AbstractContextManager:
    """A context in which NumPy's factorisations take one thread, where that is known.

    Waiting threads make small ones ten to fifty times slower on a busy machine; XLA
    computes the large products.
    """
    libraries = _find_libraries()
    if libraries is None:
        return contextlib.nullcontext()
    return libraries.limit(limits=1, user_api="blas")


@functools.cache
def _find_libraries() -> Any:
    """The libraries of linear algebra in this process, or None.

    They are loaded with this package. To find them takes 2 to 10 ms, the more programs
    JAX has compiled: all memory maps of the process are read.
    """
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()
