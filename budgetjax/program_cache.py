"""Compiled programs kept on the disk, for the processes that come."""

import contextlib
import hashlib
import os
import pathlib
import platform

# A folder, or `off`: what the command line goes by.
VARIABLE = "BUDGETJAX_CACHE"
OFF = "off"
# Options of JAX as its environment has them: its own folder, and to keep each program,
# as most of ours take less than the second that JAX asks for.
FOLDER = "JAX_COMPILATION_CACHE_DIR"
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.0,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
}


def cache_compiled_programs(
    folder: str | os.PathLike[str] | None = None,
) -> str | None:
    """Keeps compiled programs on the disk, so that later processes need not compile.

    Compilation is most of the time of a first fit. Call it before anything is computed:
    what has been compiled before is not kept. It is JAX's persistent compilation cache,
    told to keep small programs too, and a matter of speed alone: where the folder
    cannot be written, nothing is kept and everything works. The folder may be deleted
    at any time.

    The command line does this by itself, unless the environment variable
    BUDGETJAX_CACHE is `off`.

    Args:
      folder: where to keep them, each kind of processor in a folder of its own; None is
        the folder that JAX has been given, as by JAX_COMPILATION_CACHE_DIR, or else
        `budgetjax` in the user's cache folder (XDG_CACHE_HOME, or `~/.cache`).

    Returns:
      The folder, or None if it cannot be written.

    Example:
      >>> import budgetjax as bj
      >>> _ = bj.cache_compiled_programs()  # doctest: +SKIP
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    own = getattr(jax.config, FOLDER.lower())
    found = own if folder is None and own else _writable(folder)
    if found is None:
        return None
    # As it was told at the first compilation, if there was one.
    compilation_cache.reset_cache()
    jax.config.update(FOLDER.lower(), found)
    for name, value in SETTINGS.items():
        if name not in os.environ:
            jax.config.update(name.lower(), value)
    return found


def set_environment() -> None:
    """The same for a process that has yet to import JAX, by its environment."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() == OFF:
        return
    if FOLDER not in os.environ:
        found = _writable(wanted or None)
        if found is None:
            return
        os.environ[FOLDER] = found
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, str(value))


def _writable(folder: str | os.PathLike[str] | None) -> str | None:
    """The folder for this processor, made if need be; None if that is not possible."""
    try:
        if folder is None:
            home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
            folder = pathlib.Path(home) / "budgetjax"
        found = pathlib.Path(folder) / _processor()
        found.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # RuntimeError: there is no home.
        return None
    return str(found) if os.access(found, os.W_OK) else None


def _processor() -> str:
    """A name for what machine code of this computer runs on: homes are shared."""
    features = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        features = next((line for line in file if line.startswith("flags")), "")
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    return f"{platform.machine()}-{digest}"
