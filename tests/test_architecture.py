"""What the parts of the package may know of each other, beside the import contracts."""

import ast
from collections import Counter
from pathlib import Path

import budgetjax as bj

PACKAGE = Path(bj.__file__).parent
# Reads of the arrays of a support set outside the core, by file: the refit, which
# solves for them, and what writes vectors anew. Elsewhere a state is asked, by its
# methods.
READS = {
    "cli/info.py": 1,
    "exporting/predictor.py": 2,
    "refitting/merge_models.py": 1,
    "refitting/metric.py": 2,
    "refitting/newton.py": 1,
    "refitting/one_class.py": 1,
    "refitting/problem.py": 1,
    "refitting/refit.py": 1,
    "refitting/solution.py": 1,
    "refitting/training_data.py": 1,
    "river/online.py": 1,
    "river/queue.py": 1,
    "training/fit.py": 1,
}


def _nodes():
    """The syntax of every file, with its name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            yield name, node


def test_only_the_core_reads_the_arrays_of_a_state():
    found = Counter(
        name
        for name, node in _nodes()
        if isinstance(node, ast.Attribute) and node.attr == "expansion"
        if not name.startswith("online/")
        if ast.unparse(node.value) not in ("basis", "self")
    )
    assert found == READS


def test_only_the_face_imports_the_package_by_text():
    """An import that no tool sees would let the ground import the roof."""
    found = {
        name
        for name, node in _nodes()
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and any(word in ast.unparse(node) for word in ("budgetjax", "__name__"))
    }
    assert found == {"__init__.py"}


def test_nobody_asks_which_learner_a_state_has():
    """The methods and class attributes of a learner say what others need to know."""
    learners = {"Perceptron", "Pegasos", "AROW", "SGD", "Fourier", "Nystrom", "NORMA"}
    learners |= {"Forgetron", "Ahpatron", "ALMA", "PassiveAggressive", "Projectron"}
    found = {
        name
        for name, node in _nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if learners & set(map(ast.unparse, ast.walk(node.args[1])))
    }
    assert found == set()
