"""The papers' tables and figures, one command each.

    python benchmarks/papers NAME --help
    python benchmarks/papers

Without a name, all run in turn, each in its own process. Figures that a results file
holds are not measured again, so the command can be stopped and run again. The names are
those of the files in this folder; each file says how long it takes.
"""

import importlib
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("[!_]*.py"))


def main() -> None:
    names = sys.argv[1:2]
    if not names:
        for name in tqdm(NAMES, disable=None):
            print(name, flush=True)
            subprocess.run([sys.executable, HERE, name], check=True)
    elif names[0] in NAMES:
        # Code that all benchmarks share.
        sys.path.insert(0, str(HERE.parent))
        sys.argv = [f"benchmarks/papers {names[0]}", *sys.argv[2:]]
        importlib.import_module(names[0]).main()
    else:
        sys.exit(f"papers: the names are {', '.join(NAMES)}, got {names[0]}")


if __name__ == "__main__":
    main()
