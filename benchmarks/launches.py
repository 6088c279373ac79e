"""Launches per turn of every loop, counted in programs for a GPU and for a TPU.

    pip install --group accelerators
    python benchmarks/launches.py

XLA's compilers for both run on machines that have neither, from a description of the
device, so this counts and does not time. On a GPU each operation of an optimised
program is one launch from the host, of 2 to 5 microseconds; within a command buffer,
which captures a loop once (`XLA_FLAGS=--xla_gpu_enable_command_buffer=+WHILE`), it
takes about one. On a TPU they are operations of one program.

Each row of `results/launches.csv` is a run or a sweep on one device. `launches` are
those outside all loops. Every loop has its depth and its launches per turn, with those
of inner loops times their number of turns where it is known, and the larger branch of
each conditional; `alone` is without inner loops and branches; `copied` and `temporary`
are MiB: arrays copied per turn, and what the program reserves beside its arguments and
results. `captured` says whether a command buffer holds the loop.
"""

import argparse
import dataclasses
import functools
import importlib.util
import math
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import runner
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import budgetjax as bj
from budgetjax.online import driver, examples, sweeps

OUTPUT = runner.RESULTS / "launches.csv"
# Names in XLA's descriptions of GPUs, and of topologies of TPUs.
GPUS = {"H100": "NVIDIA H100 80GB HBM3"}
TPUS = {"TPU v5e": "v5e:1x1"}
DEVICES = (*GPUS, *TPUS)
CUDA = "jax_plugins.xla_cuda13"
# What only names or views a result.
FREE = {"parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"}
FREE |= {"partition-id", "replica-id", "opt-barrier"}
ROWS, FEATURES, BUDGET, BLOCK, MODELS = 50_000, 22, 100, 256, 1024


def missing(names: Iterable[str] = DEVICES) -> str:
    """What is not installed of that which compiles for these devices, or nothing."""

    def found(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    needed = {CUDA, "nvidia.cu13"} if set(names) & set(GPUS) else set()
    needed |= {"libtpu"} if set(names) & set(TPUS) else set()
    return " ".join(name for name in sorted(needed) if not found(name))


def prepare(dump: str) -> None:
    """Sets what XLA reads once, before its first program."""
    found = importlib.util.find_spec("nvidia.cu13")
    cuda = next(iter((found and found.submodule_search_locations) or [""]))
    os.environ["PATH"] = f"{cuda}/bin{os.pathsep}{os.environ['PATH']}"
    flags = {
        "gpu_cuda_data_dir": cuda,
        # There is no device to time alternatives on.
        "gpu_autotune_level": 0,
        "gpu_enable_command_buffer": "+WHILE,+CONDITIONAL",
        "dump_to": dump,
        "dump_hlo_as_text": "true",
    }
    given = [f"--xla_{name}={value}" for name, value in flags.items()]
    os.environ |= {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-1",
        "TPU_TOPOLOGY": "1x1",
    }
    jax.config.update("jax_platforms", "cpu")
    before = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([before, *given])
    # XLA reads them here; the results need not name these folders.
    jax.block_until_ready(jax.jit(jnp.negative)(1.0))
    os.environ["XLA_FLAGS"] = before


def decide_for(name: str) -> None:
    """Lets the package decide for this device what it decides by the backend."""
    backend = "gpu" if name in GPUS else "tpu"
    setattr(jax, "default_backend", lambda: backend)  # noqa: B010
    # What is traced already is decided.
    jax.clear_caches()


@functools.cache
def device(name: str) -> Any:
    """A device to compile for."""
    if name in TPUS:
        return topologies.get_topology_desc(TPUS[name], "tpu").devices[0]
    plugin = Path(importlib.import_module(CUDA).__path__[0]) / "xla_cuda_plugin.so"
    with (
        plugin.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        inside = data.find(f'device_description_str: "{GPUS[name]}"'.encode())
        start = data.rfind(b"gpu_device_info {", 0, inside)
        text = data[start : data.find(b"\0", inside)].decode()
    found = topologies.get_topology_desc(
        "", "cuda", target_config=text, topology="1x1x1"
    )
    return found.devices[0]


def compiled(name: str, program: Any, *given: Any, **named: Any) -> Any:
    """A program for this device and for arguments like these; others are static."""
    sharding = SingleDeviceSharding(device(name))

    def shaped(leaf):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            return leaf
        kind = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
        return jax.ShapeDtypeStruct(np.shape(leaf), kind, sharding=sharding)

    given, named = jax.tree.map(shaped, (given, named))
    return program.lower(*given, **named).compile()


@dataclasses.dataclass
class Turn:
    """What a turn of a loop runs, or a branch, or the program outside its loops."""

    kind: str
    trips: int | None = None
    launches: int = 0
    copied: int = 0
    parts: list["Turn"] = dataclasses.field(default_factory=list)

    def total(self, of: str = "launches") -> int:
        """With all parts: loops of unknown length once, and the larger branch."""
        branches = [part.total(of) for part in self.parts if part.kind == "branch"]
        loops = [
            (part.trips or 1) * part.total(of)
            for part in self.parts
            if part.kind == "loop"
        ]
        return getattr(self, of) + sum(loops) + max(branches, default=0)

    def loops(self, depth: int = 0) -> Iterator[tuple[int, "Turn"]]:
        """The loops inside, outer ones first, and in how many others each is."""
        for part in self.parts:
            if part.kind == "loop":
                yield depth, part
            yield from part.loops(depth + (part.kind == "loop"))


def size_of(shape: str) -> int:
    """The bytes of an array, or of the first of several, from XLA's text."""
    found = re.search(r"\b(pred|[a-z]+(\d+))\[([\d,]*)\]", shape)
    assert found, shape
    sides = map(int, filter(None, found[3].split(",")))
    return math.prod(sides) * int(found[2] or 8) // 8


def read(text: str) -> Turn:
    """The loops of an optimised program."""
    computations, lines = {}, []
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            lines = computations.setdefault("" if head[1] else head[2], [])
        elif line.startswith("  "):
            lines.append(line)

    def walk(name: str, turn: Turn) -> Turn:
        for line in computations[name]:
            found = re.match(r"\s+(?:ROOT )?%?\S+ = (\(.*?\)|\S+) ([\w\-]+)\(", line)
            assert found, line
            shape, operation = found.groups()
            called = dict(re.findall(r"(\w+)=%?([\w.\-]+)", line))
            if operation == "while":
                known = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                loop = Turn("loop", int(known[1]) if known else None)
                if not known:
                    walk(called["condition"], loop)
                turn.parts.append(walk(called["body"], loop))
            elif operation == "conditional":
                listed = re.search(r"branch_computations=\{([^}]*)\}", line)
                names = re.findall(r"[\w.\-]+", listed[1]) if listed else []
                names += [called[key] for key in called if key.endswith("_computation")]
                turn.parts += [walk(name, Turn("branch")) for name in names]
            elif operation == "call":
                walk(called["to_apply"], turn)
            elif operation not in FREE:
                turn.launches += 1
                if operation in ("copy", "copy-start"):
                    turn.copied += size_of(shape)
        return turn

    return walk("", Turn("program"))


def captures(dump: Path) -> list[bool]:
    """Whether a command buffer holds each loop of the program compiled last."""
    files = dump.glob("*.thunk_sequence_after_thunk_passes.txt")
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    found, buffers = [], []
    for line in newest.read_text().splitlines():
        thunk = re.match(r"( *)\d+: (k\w+)", line)
        if thunk is None:
            continue
        depth, kind = len(thunk[1]), thunk[2]
        buffers = [at for at in buffers if at < depth]
        if kind == "kCommandBuffer":
            buffers.append(depth)
        elif kind == "kWhile":
            found.append(bool(buffers))
    return found


def counted(name: str, dump: Path, program: Any) -> dict[str, Any]:
    """The figures of a compiled program."""
    turn = read(program.as_text())
    loops: list[dict[str, Any]] = [
        {
            "depth": depth,
            "turns": loop.trips,
            "launches": loop.total(),
            "alone": loop.launches,
            "copied": loop.total("copied") / 2**20,
        }
        for depth, loop in turn.loops()
    ]
    if name in GPUS and loops:
        for loop, captured in zip(loops, captures(dump), strict=True):
            loop["captured"] = captured
    temporary = program.memory_analysis().temp_size_in_bytes / 2**20
    return {"launches": turn.launches, "temporary": temporary, "loops": loops}


LEARNERS: dict[str, tuple[bj.Learner, dict[str, Any]]] = {
    "Perceptron, remove the oldest": (
        bj.Perceptron(),
        {"maintenance": bj.RemoveOldest()},
    ),
    "Pegasos, merge": (bj.Pegasos(), {"maintenance": bj.Merge()}),
    "AROW": (bj.AROW(), {}),
    "KRLST": (bj.KRLST(), {"num_classes": None}),
}


def stream(learner: str, models: int) -> tuple[Any, ...]:
    """The program of a run or of a sweep, and its arguments."""
    chosen, shared = LEARNERS[learner]
    X, y = np.zeros((ROWS, FEATURES), np.float32), np.ones(ROWS, np.int32)

    def init(gamma):
        kernel = bj.RBF(gamma)
        return chosen.init(kernel, num_features=FEATURES, budget=BUDGET, **shared)

    given = examples.check_stream(init(0.5), X, y, None)
    if models == 1:
        return driver.run_checked, init(0.5), *given, BLOCK, True
    states = jax.vmap(init)(jnp.ones(models))

    def learn(states, X, y, weights):
        return jax.vmap(
            lambda state: driver.run_with_errors(
                state, X, y, weights, BLOCK, sweeps.MODELS
            ),
            axis_name=sweeps.MODELS,
        )(states)

    return jax.jit(learn), states, *given


def rows(name: str, dump: Path) -> Iterator[dict[str, Any]]:
    """A row of results per program on a device."""
    decide_for(name)
    for learner in LEARNERS:
        for part, models in {"run": 1, "sweep": MODELS}.items():
            program, *given = stream(learner, models)
            figures = counted(name, dump, compiled(name, program, *given))
            yield {"device": name, "part": part, "what": learner, **figures}


def main():
    parser = argparse.ArgumentParser(description="Launches of compiled programs")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=list(DEVICES))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    if absent := missing(given.devices):
        sys.exit(f"not installed: {absent}; pip install --group accelerators")
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        output = given.output
        kept = runner.read(output)
        found = [row for row in kept if row["device"] not in given.devices]
        for name in given.devices:
            for row in rows(name, Path(folder)):
                turns = [loop["launches"] for loop in row["loops"]]
                print(name, row["what"], row["part"], end=": ")
                print(f"{row['launches']}, and per turn {turns}", flush=True)
                outer = [loop for loop in row["loops"] if loop["depth"] == 0]
                row["per turn"] = ", ".join(f"{loop['launches']:,}" for loop in outer)
                caught = ("yes" if loop.get("captured") else "no" for loop in outer)
                row["captured"] = ", ".join(caught)
                found.append(row | runner.about())
                runner.write(found, output)


if __name__ == "__main__":
    main()
