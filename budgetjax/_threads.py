"""How many threads NumPy's linear algebra takes."""

import contextlib


def one_thread() -> contextlib.AbstractContextManager:
    """A context in which NumPy's factorisations take one thread, where that is known.

    Waiting threads make small ones ten to fifty times slower on a busy machine; XLA
    computes the large products.
    """
    try:
        import threadpoolctl
    except ImportError:
        return contextlib.nullcontext()
    return threadpoolctl.threadpool_limits(1, user_api="blas")
