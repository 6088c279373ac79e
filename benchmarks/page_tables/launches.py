"""The tables of launches on the page on speed."""

from collections.abc import Iterable
from typing import Any

from page_tables.results import Cells, one, rows, significant, states, table, whole

PAGE = "benchmarks/speed.md"
LEARNERS = ("Perceptron, remove the oldest", "Pegasos, merge", "AROW")
PARTS = {"run": "one stream", "sweep": "1,024 models"}
DEVICES = ("H100", "TPU v5e")


def counted(device: str, part: str, what: str) -> tuple[dict[str, Any], ...]:
    """The row of a stream, its loop over blocks and that over violations."""
    row = one("launches", device=device, part=part, what=what)
    return row, *row["loops"][:2]


@table(PAGE, "launches")
def streams() -> Cells:
    head = ["", "H100: per violation", "per block", "MiB copied", "MiB reserved"]
    lines = [[*head, "TPU v5e: per violation", "per block", "MiB reserved"]]
    for what in LEARNERS:
        for part, name in PARTS.items():
            cells = [f"{what}, {name}"]
            for device in DEVICES:
                row, block, turn = counted(device, part, what)
                cells += [str(turn["launches"]), str(block["alone"])]
                if device == "H100":
                    copied = turn["copied"]
                    cells.append("0" if copied < 0.005 else significant(2)(copied))
                cells.append(significant(2)(row["temporary"]))
            lines.append(cells)
    return lines


def called(device: str) -> dict[str, list[dict[str, Any]]]:
    """The programs of every call."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows("launches", device=device, part="call"):
        found.setdefault(row["what"], []).append(row)
    return found


def outer(programs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The loops of these programs that are in no other loop."""
    loops = (loop for row in programs for loop in row["loops"])
    return [loop for loop in loops if loop["depth"] == 0]


@table(PAGE, "launches-calls")
def calls() -> Cells:
    head = ["", "programs", "H100: outside loops", "per turn of each loop"]
    head.append("captured")
    lines = [[*head, "TPU v5e: outside loops"]]
    others = called("TPU v5e")
    for what, programs in called("H100").items():
        lines.append([
            what,
            str(len(programs)),
            whole(sum(row["launches"] for row in programs)),
            ", ".join(whole(loop["launches"]) for loop in outer(programs)),
            ", ".join("yes" if loop["captured"] else "no" for loop in outer(programs)),
            whole(sum(row["launches"] for row in others[what])),
        ])  # fmt: skip
    return lines


@states(PAGE)
def words() -> Iterable[str]:
    streams = [
        loop
        for part in PARTS
        for row in rows("launches", device="H100", part=part)
        for loop in row["loops"]
    ]
    assert all(loop["captured"] for loop in streams)
    # A matrix of kernel rows of all models, and one of pairs, are larger.
    assert max(loop["copied"] for loop in streams if loop["depth"]) < 2
    yield "A command buffer holds every loop of the streams and sweeps"
    visits = outer([
        row
        for row in called("H100")["`solve`, `mpu`"]
        if row["program"] == "_steps"
    ])  # fmt: skip
    yield f"one step of `bj.MPU` on 2,048 rows launches {whole(visits[0]['launches'])}"
