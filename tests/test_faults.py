"""The faults that `faults.py` plants are of lines that the package has."""

from faults import FAULTS, ROOMS, ROOT


def test_each_fault_has_one_place():
    def times(fault):
        return (ROOT / "budgetjax" / fault.file).read_text("utf-8").count(fault.line)

    wrong = [f"{one.file}: {one.line!r}" for one in FAULTS if times(one) != 1]
    assert not wrong, "not there, or not alone:\n" + "\n".join(wrong)
    assert all(fault.line != fault.fault for fault in FAULTS)


def test_rooms_have_tests():
    assert {fault.room for fault in FAULTS} == set(ROOMS)
    named = {f"test_{name}.py" for names in ROOMS.values() for name in names}
    assert all((ROOT / "tests" / name).exists() for name in named)
