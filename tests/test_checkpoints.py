"""Checkpoints: a run that is interrupted, in any way, continues to the same result."""

import errno
import multiprocessing
import os
import pathlib
import signal
import time

import killed
import numpy as np
import optax
import pytest
import registry
from streams import ROWS, cut, fit, identical

import budgetjax as bj
from budgetjax.saving import model_files
from budgetjax.stream import Batches

N = 5 * ROWS + 9
ROW = registry.Row("random", bj.Perceptron(), {"maintenance": bj.RemoveRandom()})
X, Y = ROW.stream(N)
ENCODE = {False: None, True: bj.encoding.fit(X, 0)}


def batches(lengths=(50,), rows=N, data=(X, Y)):
    return cut([part[:rows] for part in data], list(lengths))


def until(row, error, data=(X, Y)):
    """The batches, and then an error before this row."""
    yield from batches(rows=row, data=data)
    raise error


@pytest.fixture(scope="module")
def undisturbed():
    return {on: fit(ROW, batches(), encode=ENCODE[on]) for on in (False, True)}


@pytest.mark.parametrize(
    ("error", "every", "encodes"),
    [
        (KeyboardInterrupt, 1, False),
        (KeyboardInterrupt, 100, True),
        (OSError, 2, True),
        (RuntimeError, 100, False),
    ],
)
def test_a_run_that_fails_goes_on(undisturbed, tmp_path, error, every, encodes):
    path = tmp_path / "run.safetensors"
    more = {"checkpoint": path, "every": every, "encode": ENCODE[encodes]}
    # The last whole batch is kept: 4 of them, and not half of the fifth.
    raised = KeyboardInterrupt if error is KeyboardInterrupt else bj.StreamError
    for rows in (100, 100, 290):
        with pytest.raises(raised):
            fit(ROW, until(rows, error("stop")), **more)
        assert model_files.load(path).num_rows == rows // ROWS * ROWS
    model = fit(ROW, batches((7, 90)), **more)
    identical(model, undisturbed[encodes])
    identical(model_files.load(path), model)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("encodes", [False, True])
def test_a_reservoir_goes_on_too(tmp_path, encodes):
    more = {"encode": ENCODE[encodes], "reservoir": 70}
    expected = fit(ROW, batches(), **more)
    assert expected.reservoir is None
    more["checkpoint"] = path = tmp_path / "run"
    for rows in (100, 290):
        with pytest.raises(KeyboardInterrupt):
            fit(ROW, until(rows, KeyboardInterrupt("stop")), **more)
        reservoir = model_files.load(path).reservoir
        assert reservoir.num_rows == rows // ROWS * ROWS
        # A number for each row of the stream, from one generator, and the least stay.
        numbers = np.random.Generator(np.random.PCG64(0)).random(reservoir.num_rows)
        kept = np.argsort(numbers)[:70]
        np.testing.assert_array_equal(reservoir.rows().numbers, numbers[kept])
        np.testing.assert_array_equal(reservoir.rows().y, Y[kept])
    identical(fit(ROW, batches((7, 90)), **more), expected)
    # The file holds what the stream has left, to which the last rows are added anew.
    identical(fit(ROW, batches(), **more), expected)
    more["reservoir"] = 71
    with pytest.raises(ValueError, match="encoding and reservoir, got one of other"):
        fit(ROW, batches(), **more)


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c(undisturbed, tmp_path):
    path = tmp_path / "run"

    def slow():
        for i, batch in enumerate(batches()):
            if i == 4:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            yield batch

    with pytest.raises(KeyboardInterrupt):
        fit(ROW, slow(), checkpoint=path)
    assert model_files.load(path).num_rows in (ROWS, 2 * ROWS, 3 * ROWS)
    identical(fit(ROW, batches(), checkpoint=path), undisturbed[False])


def test_a_run_that_ended_gives_its_result(undisturbed, tmp_path):
    path = tmp_path / "run.safetensors"
    fit(ROW, batches(), checkpoint=path)
    written = path.read_bytes()
    identical(fit(ROW, batches((9,)), checkpoint=path), undisturbed[False])
    assert path.read_bytes() == written
    # And anew, if that is wanted.
    identical(fit(ROW, batches(), checkpoint=path, resume=False), undisturbed[False])


def test_it_is_read_and_hashed_once(interrupted, monkeypatch, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(interrupted)
    read, checked = [], model_files._read_intact
    monkeypatch.setattr(
        model_files,
        "_read_intact",
        lambda *given: read.append(given) or checked(*given),
    )
    fit(ROW, batches(), checkpoint=path)
    assert len(read) == 1


def test_it_is_written_when_it_should_be(monkeypatch, tmp_path):
    written = []

    def write(path, model, notes):
        assert path == str(tmp_path / "run")
        written.append((notes["batches"], model.num_rows))

    monkeypatch.setattr(model_files, "write", write)
    fit(ROW, batches(), checkpoint=tmp_path / "run", every=2)
    assert written == [(0, 0), (2, 2 * ROWS), (4, 4 * ROWS), (6, N)]
    written.clear()
    fit(ROW, batches(), checkpoint=str(tmp_path / "run"), every=3)
    assert written == [(0, 0), (3, 3 * ROWS), (6, N)]


def test_going_on_from_a_model_has_a_checkpoint_of_its_own(tmp_path):
    path = tmp_path / "run"
    first = fit(ROW, batches(rows=2 * ROWS), encode=ENCODE[True])
    rest = (X[2 * ROWS :], Y[2 * ROWS :])
    expected = fit(ROW, cut(rest, [50]), first)
    with pytest.raises(KeyboardInterrupt):
        fit(ROW, until(2 * ROWS - 8, KeyboardInterrupt, rest), first, checkpoint=path)
    assert model_files.load(path).num_rows == 2 * ROWS + ROWS
    identical(fit(ROW, cut(rest, [50]), first, checkpoint=path), expected)


def test_functions_of_the_caller_come_from_its_state(tmp_path):
    def own_loss(score, y):
        return optax.losses.squared_error(score, y)

    learner = bj.SGD(loss=own_loss, learning_rate=0.1)
    row = registry.Row("own", learner, {"maintenance": bj.RemoveOldest()}, 0)
    path, labels = tmp_path / "run", Y.astype(np.float32)
    expected = fit(row, cut((X, labels), [50]))
    with pytest.raises(KeyboardInterrupt):
        fit(row, until(150, KeyboardInterrupt, (X, labels)), checkpoint=path)
    with pytest.raises(ValueError, match="own_loss"):
        model_files.load(path)
    identical(fit(row, cut((X, labels), [50]), checkpoint=path), expected)


OTHER_LABELS = np.where(np.arange(N) == 2 * ROWS + 3, -Y, Y)


def arow():
    return bj.AROW().init(bj.RBF(0.5), num_features=3, budget=10)


OTHERS = {
    "hyperparameters": (
        lambda: {"state": ROW.init(kernel=bj.RBF(0.7))},
        "same learner",
    ),
    "a budget": (lambda: {"state": ROW.init(budget=9)}, "same learner"),
    "a kernel": (lambda: {"state": ROW.init(kernel=bj.Laplacian(0.5))}, "same learner"),
    "a learner": (lambda: {"state": arow()}, "same learner"),
    "encoding": (lambda: {"encode": ENCODE[True]}, "same learner"),
    "classes": (lambda: {"classes": [-1, 1]}, "same learner"),
    "batch_rows": (lambda: {"batch_rows": 32}, "got one of 64"),
    "a label of the last batch": (
        lambda: {"data": (X, OTHER_LABELS)},
        "rows 128 to 191 must be those that the checkpoint has learned, got others",
    ),
    "fewer rows": (
        lambda: {"data": (X[:128], Y[:128])},
        "must have the 192 rows .*, got 128",
    ),
    "no rows": (lambda: {"data": (X[:0], Y[:0])}, "must have the 192 rows .*, got 0"),
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The bytes of a checkpoint after three batches."""
    path = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(ROW, until(3 * ROWS, KeyboardInterrupt), checkpoint=path)
    return path.read_bytes()


@pytest.mark.parametrize("name", OTHERS)
def test_checkpoints_of_other_runs_are_refused(name, interrupted, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(interrupted)
    make, says = OTHERS[name]
    more = make()
    source = batches(data=more.pop("data", (X, Y)))
    says = rf"fit_stream: .+ {says}.*delete it to start anew"
    with pytest.raises(ValueError, match=says) as raised:
        fit(ROW, source, checkpoint=path, **more)
    assert path.read_bytes() == interrupted
    if isinstance(raised.value, bj.StreamError):
        assert raised.value.model.num_rows == 3 * ROWS


def test_files_that_are_no_checkpoints_are_refused(interrupted, tmp_path):
    path = tmp_path / "run"
    changed = bytearray(interrupted)
    # The first character of the header.
    changed[8] ^= 1
    bj.save(tmp_path / "model", ROW.init())
    for data, says in (
        (interrupted[:-7], "another digest.* start anew"),
        (bytes(changed), "damaged.* give another path"),
        # What is no checkpoint is not to be lost.
        (b"a,b\n1,2\n", "give another path"),
        (b"", "give another path"),
        ((tmp_path / "model").read_bytes(), "a model without a place"),
    ):
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match=rf"fit_stream: checkpoint.*{path}.*{says}"
        ):
            fit(ROW, batches(), checkpoint=path)
        assert path.read_bytes() == data
    with pytest.raises(ValueError, match=r"fit_stream: checkpoint: .* a folder"):
        fit(ROW, batches(), checkpoint=tmp_path)
    assert fit(ROW, batches(), checkpoint=path, resume=False).num_rows == N


def full(*given):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(undisturbed, monkeypatch, tmp_path):
    path = tmp_path / "run"
    read = []

    def source():
        for i, batch in enumerate(batches()):
            if i == 3:
                read.append(path.read_bytes())
                monkeypatch.setattr(os, "fsync", full)
            yield batch

    with pytest.raises(
        bj.CheckpointError, match=r"fit_stream: checkpoint .*run must be writ.*No space"
    ) as raised:
        fit(ROW, source(), checkpoint=path, every=2)
    error = raised.value
    assert isinstance(error, OSError)
    # The model is that of the rows that could not be written, and goes on.
    assert error.model.num_rows % ROWS == 0
    assert error.model.num_rows >= 2 * ROWS
    assert f".model has learned {error.model.num_rows} rows" in str(error)
    assert os.listdir(tmp_path) == [path.name]
    rest = slice(error.model.num_rows, None)
    identical(fit(ROW, [(X[rest], Y[rest])], error.model), undisturbed[False])
    # The last good one is what it was, and serves.
    assert model_files.load(path).num_rows <= error.model.num_rows
    monkeypatch.undo()
    identical(fit(ROW, batches(), checkpoint=path), undisturbed[False])


def test_a_full_disk_does_not_hide_another_error(monkeypatch, tmp_path):
    path = tmp_path / "run"

    def source():
        yield X[:100], Y[:100]
        monkeypatch.setattr(os, "fsync", full)
        bad = X[100:].copy()
        bad[60] = np.nan
        yield bad, Y[100:]

    with pytest.raises(
        bj.StreamError, match="must be finite, got nan in row 160"
    ) as raised:
        fit(ROW, source(), checkpoint=path)
    assert raised.value.model.num_rows == 2 * ROWS
    assert "No space left" in raised.value.__notes__[0]
    assert model_files.load(path).num_rows == 0


def test_places_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    says = r"fit_stream: checkpoint .*run must be"
    for path in (tmp_path / "file" / "run", tmp_path / "none" / "run"):
        # Before anything is learned.
        with pytest.raises(bj.CheckpointError, match=says) as raised:
            fit(ROW, batches(), checkpoint=path)
        assert raised.value.model.num_rows == 0


def test_what_cannot_be_read_is_told_of(monkeypatch, tmp_path):
    path = tmp_path / "run"
    fit(ROW, batches(), checkpoint=path)

    def refused(*given):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "read_bytes", refused)
    with pytest.raises(
        bj.CheckpointError, match="must be readable, got PermissionError"
    ):
        fit(ROW, batches(), checkpoint=path)


def test_the_bar_begins_where_the_run_goes_on(interrupted, tmp_path, capsys):
    path = tmp_path / "run"
    path.write_bytes(interrupted)
    source = Batches("some.csv", 3, batches, num_rows=N)
    fit(ROW, source, checkpoint=path, progress=True)
    assert f"{N}/{N}" in capsys.readouterr().err.splitlines()[-1].rpartition("\r")[2]


KILLS, MOST_KILLS = 5, 25


@pytest.mark.slow
@pytest.mark.usefixtures("quick_process")
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    """A chain of runs, each killed and each going on from the one before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["killed", "budgetjax", "safetensors.numpy"])
    random = np.random.default_rng(0)
    path, undisturbed, cache = (tmp_path / name for name in ("run", "other", "cache"))

    def start(path, *more):
        child = context.Process(target=killed.run, args=(path, cache, *more))
        child.start()
        return child

    def finish(path):
        child = start(path)
        child.join()
        assert child.exitcode == 0

    finish(undisturbed)
    places, progress = [], []
    # A busy machine may kill later than it is told to: until it has hit both places.
    for i in range(MOST_KILLS):
        if i >= KILLS and {killed.LEARNING, killed.WRITING} <= set(places):
            break
        told = context.Value("i", killed.STARTING, lock=False)
        child = start(path, 0.01, told)
        # Some as they start; half of the others as they learn, half as they write.
        if i % 5:
            place = killed.WRITING if i % 2 else killed.LEARNING
            wait(child, lambda told=told: told.value != killed.STARTING)
            time.sleep(random.uniform(0, 0.05))
            wait(child, lambda told=told, place=place: told.value == place)
            time.sleep(random.uniform(0, 0.003))
        else:
            time.sleep(random.uniform(0, 0.4))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        places.append(told.value)
        progress.append(model_files.load(path).num_rows if path.exists() else 0)
    assert progress == sorted(progress)
    assert len(set(progress)) >= KILLS // 2
    assert progress[-1] < killed.ROWS * killed.BATCHES
    assert {killed.LEARNING, killed.WRITING} <= set(places)
    finish(path)
    # The state, the scaling, the curve and the place in the stream, all in one.
    assert path.read_bytes() == undisturbed.read_bytes()
    assert model_files.load(path).num_rows == killed.ROWS * killed.BATCHES


def wait(child, condition):
    while not condition():
        assert child.is_alive()
