"""Plain English: pages, docstrings and comments hold no phrase of .prose.toml.

Nor do they hold a word for learners that is none of today's.
"""

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

from budgetjax import registry

HERE = Path(__file__).parent
PHRASES = {
    re.compile(phrase.replace(" ", r"\s"), re.IGNORECASE): better
    for phrase, better in tomllib.loads((HERE / ".prose.toml").read_text()).items()
}

STARTS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def documentation(source: str) -> str:
    """The docstrings and comments of a program, each on its lines."""
    lines = [""] * (source.count("\n") + 2)
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and before in STARTS
        if docstring or token.type == tokenize.COMMENT:
            for number, line in enumerate(token.string.split("\n"), token.start[0]):
                lines[number] += line.lstrip("# ")
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return "\n".join(lines[1:])


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and suggestion of every phrase; a space may be the end of a line."""
    text = re.sub(r"^[^\S\n]+|[^\S\n]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"[^\S\n]+", " ", text)
    for phrase, better in PHRASES.items():
        for match in phrase.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[0], better


def test_prose_is_plain():
    root = HERE.parent
    folders = (root / name for name in ("budgetjax", "examples", "benchmarks"))
    wrong = []
    for path in [*root.glob("*.md"), *(p for f in folders for p in f.rglob("*.*"))]:
        if path.suffix in (".md", ".py"):
            text = path.read_text()
            text = documentation(text) if path.suffix == ".py" else text
            for line, phrase, better in found(text):
                wrong.append(f"{path}:{line}: {phrase!r}: better {better}")
    assert not wrong, "\n" + "\n".join(sorted(wrong))


def test_phrases_are_found_across_lines_of_documentation():
    text = 'x = "nobody"\n\n\ndef f():\n    """Nobody."""\n    # What is\n    # left.\n'
    assert sorted(line for line, *_ in found(documentation(text))) == [5, 6]


# A learner or a solver is a class, in capitals, and is handed on as `learner=`.
NAMES = "|".join(map(registry.name_of, (*registry.LEARNERS, *registry.SOLVERS)))
OLD = re.compile(
    rf"\b(?:bj|budgetjax)\.(?:{NAMES})\b|\bbj\.Algorithm\b|\binit_(?:fields|maintenance)\b"
    r"|\balgorithm=|\blandmarks="
)


def test_learners_and_solvers_are_called_by_their_classes():
    root = HERE.parent
    folders = ("budgetjax", "examples", "benchmarks", ".docs", ".github")
    files = [path for folder in folders for path in (root / folder).rglob("*.*")]
    wrong = [
        f"{path}: {word}"
        for path in (*root.glob("*.md"), *files)
        if path.suffix in (".md", ".py", ".yml")
        for word in OLD.findall(path.read_text("utf-8"))
    ]
    assert not wrong, "\n" + "\n".join(sorted(wrong))


def test_old_words_are_found():
    old = "bj.pegasos.init", "budgetjax.sgd", "Fit(algorithm=1)", "bj.init_fields"
    old += "bj.linear_pegasos", "budgetjax.smo"
    assert all(map(OLD.search, old))
    new = "bj.LinearPegasos", "bj.bounds.pegasos", "bj.SGD", "learner=bj.AROW()"
    assert not any(map(OLD.search, new))
