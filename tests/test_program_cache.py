"""Compiled programs kept on the disk: where, and that nothing else depends on it."""

import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import budgetjax as bj
from budgetjax import _compile_cache
from budgetjax.estimators import BudgetedKernelClassifier

OPTIONS = ("jax_compilation_cache_dir", *map(str.lower, _compile_cache.SETTINGS))


@pytest.fixture
def as_it_was():
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def environment(monkeypatch):
    """No word of any cache in the environment."""
    for name in list(os.environ):
        if "CACHE" in name and name.split("_")[0] in ("JAX", "BUDGETJAX", "XDG"):
            monkeypatch.delenv(name)
    # What is set in a test is gone after it.
    for name in (_compile_cache.FOLDER, *_compile_cache.SETTINGS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_programs_are_kept(as_it_was, environment, tmp_path):
    folder = bj.cache_compiled_programs(tmp_path / "here")
    assert folder is not None
    assert folder.startswith(str(tmp_path))
    jax.jit(lambda x: jnp.sin(x) + 41.5)(np.float32(1)).block_until_ready()
    assert any("lambda" in name for name in os.listdir(folder))
    # What JAX has been told is left alone.
    assert bj.cache_compiled_programs() == folder


def test_a_folder_that_cannot_be_written_is_no_harm(as_it_was, environment, tmp_path):
    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    assert bj.cache_compiled_programs(tmp_path / "file" / "folder") is None
    assert jax.config.jax_compilation_cache_dir == before
    environment.setenv(_compile_cache.VARIABLE, str(tmp_path / "file" / "folder"))
    _compile_cache.set_environment()
    assert _compile_cache.FOLDER not in os.environ


def test_the_command_line_has_a_cache_unless_it_is_switched_off(environment, tmp_path):
    environment.setenv(_compile_cache.VARIABLE, "off")
    _compile_cache.set_environment()
    assert _compile_cache.FOLDER not in os.environ
    environment.delenv(_compile_cache.VARIABLE)
    environment.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    _compile_cache.set_environment()
    folder = os.environ[_compile_cache.FOLDER]
    assert folder.startswith(str(tmp_path / "xdg" / "budgetjax"))
    assert os.path.isdir(folder)
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] == "-1"


def test_the_oldest_programs_beyond_the_limit_are_deleted(
    as_it_was, environment, tmp_path
):
    environment.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment.setattr(_compile_cache, "MOST_BYTES", 25)
    jax.config.update(OPTIONS[0], None)
    folder = bj.cache_compiled_programs()
    assert folder is not None
    for age, name in enumerate(("new", "middle", "old")):
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(10 * "x")
        os.utime(path, (1000 - age, 1000 - age))
    jax.config.update(OPTIONS[0], None)
    assert bj.cache_compiled_programs() == folder
    assert sorted(os.listdir(folder)) == ["middle", "new"]
    # A folder that the user names is the user's.
    (tmp_path / "own").mkdir()
    own = bj.cache_compiled_programs(tmp_path / "own")
    assert own is not None
    with open(os.path.join(own, "large"), "w") as file:
        file.write(100 * "x")
    bj.cache_compiled_programs(tmp_path / "own")
    assert os.listdir(own) == ["large"]


def test_estimators_have_a_cache_unless_it_is_switched_off(
    as_it_was, environment, tmp_path
):
    environment.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    environment.setenv(_compile_cache.VARIABLE, "off")
    jax.config.update(OPTIONS[0], None)
    fit_in_a_new_process()
    assert jax.config.jax_compilation_cache_dir is None
    environment.delenv(_compile_cache.VARIABLE)
    jax.config.update("jax_enable_compilation_cache", False)
    fit_in_a_new_process()
    jax.config.update("jax_enable_compilation_cache", True)
    assert jax.config.jax_compilation_cache_dir is None
    fit_in_a_new_process()
    folder = jax.config.jax_compilation_cache_dir
    assert folder.startswith(str(tmp_path / "xdg" / "budgetjax"))
    # A cache of the user's stays.
    jax.config.update(OPTIONS[0], str(tmp_path / "own"))
    fit_in_a_new_process()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


def fit_in_a_new_process():
    """The first fit of an estimator, as far as the cache is concerned."""
    _compile_cache.cache_by_default.cache_clear()
    with pytest.raises(ValueError, match="inconsistent"):
        BudgetedKernelClassifier().fit(np.ones((2, 1)), np.ones(3))


def test_the_users_own_settings_of_jax_stay(environment, tmp_path):
    environment.setenv(_compile_cache.FOLDER, str(tmp_path))
    environment.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "3")
    _compile_cache.set_environment()
    assert os.environ[_compile_cache.FOLDER] == str(tmp_path)
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "3"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("damage", ["end", "all", "folder"])
def test_programs_that_are_damaged_are_compiled(damage, as_it_was, tmp_path):
    """Ended while it was written, or by another program: no test fails for that."""
    jax.config.update(OPTIONS[0], str(tmp_path / "kept"))
    compilation_cache.reset_cache()

    def run():
        return float(jax.jit(lambda x: jnp.sin(x) + 43.5)(np.float32(0)))

    assert run() == 43.5
    (program,) = (tmp_path / "kept").glob("*lambda*")
    if damage == "folder":
        shutil.rmtree(tmp_path / "kept")
        (tmp_path / "kept").write_text("")
    else:
        whole = program.read_bytes()
        program.write_bytes(whole[: len(whole) // 2] if damage == "end" else b"other")
    jax.clear_caches()
    assert run() == 43.5
