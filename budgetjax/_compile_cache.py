"""Keeps compiled programs on disk for later processes."""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform

# The environment variable of estimators and the command line: a folder, or `off`.
VARIABLE = "BUDGETJAX_CACHE"
OFF = "off"
# Environment variables of JAX: its folder, and settings that keep every program. Most
# of ours compile in less than the second that JAX requires.
FOLDER = "JAX_COMPILATION_CACHE_DIR"
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.0,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
}
# JAX's switch.
ENABLED = "jax_enable_compilation_cache"
# The bytes of programs that the default folder keeps: those of some hundred fits of
# different shapes. JAX's own limit needs another package.
MOST_BYTES = 2**29


def cache_compiled_programs(
    folder: str | os.PathLike[str] | None = None,
) -> str | None:
    """Keeps compiled programs on disk, so that later processes need not compile.

    Compilation takes most of the time of a first fit. Call this before any computation:
    programs that were compiled earlier are not kept. It configures JAX's persistent
    compilation cache to include small programs. It affects only speed: if the folder is
    not writable, nothing is kept and everything works. The folder may be deleted at any
    time.

    Estimators and the command line do this by themselves, in the folder that the
    environment variable BUDGETJAX_CACHE names, if any, unless it is `off` or JAX has a
    cache of its own. Processes may share a folder: one that reads a program while
    another writes it compiles it.

    Args:
      folder: the folder, with a subfolder per kind of processor. None is JAX's own
        folder if it is set, for example by JAX_COMPILATION_CACHE_DIR, or else
        `budgetjax` in the user's cache folder (XDG_CACHE_HOME, or `~/.cache`), where
        the oldest programs beyond 512 MiB are deleted.

    Returns:
      The folder, or None if it cannot be written.

    Example:
      >>> _ = bj.cache_compiled_programs()  # doctest: +SKIP
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    own = getattr(jax.config, FOLDER.lower())
    found = own if folder is None and own else _writable(folder)
    if found is None:
        return None
    # An earlier compilation may have set it up.
    compilation_cache.reset_cache()
    jax.config.update(FOLDER.lower(), found)
    for name, value in SETTINGS.items():
        if name not in os.environ:
            jax.config.update(name.lower(), value)
    return found


@functools.cache
def cache_by_default() -> None:
    """Keeps compiled programs on disk, unless the user has chosen otherwise."""
    import jax

    wanted = os.environ.get(VARIABLE, "")
    own, enabled = (getattr(jax.config, name) for name in (FOLDER.lower(), ENABLED))
    if wanted.lower() != OFF and not own and enabled:
        cache_compiled_programs(wanted or None)


def set_environment() -> None:
    """Sets up the cache through the environment, before JAX is imported."""
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
    """The folder for this processor, created if necessary; None if not writable."""
    is_default = folder is None
    try:
        if folder is None:
            home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
            folder = pathlib.Path(home) / "budgetjax"
        found = pathlib.Path(folder) / _processor()
        found.mkdir(parents=True, exist_ok=True)
        if is_default:
            # Another process may delete them, too.
            with contextlib.suppress(FileNotFoundError):
                _delete_oldest(found)
    except (OSError, RuntimeError):
        # RuntimeError: there is no home.
        return None
    return str(found) if os.access(found, os.W_OK) else None


def _delete_oldest(folder: pathlib.Path) -> None:
    """Deletes the oldest files beyond the limit."""
    files = [(path.stat(), path) for path in folder.iterdir()]
    kept = 0
    for status, path in sorted(files, key=lambda file: -file[0].st_mtime):
        kept += status.st_size
        if kept > MOST_BYTES:
            path.unlink(missing_ok=True)


def _processor() -> str:
    """A name for this kind of processor, since computers may share home folders."""
    features = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        features = next((line for line in file if line.startswith("flags")), "")
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    return f"{platform.machine()}-{digest}"
