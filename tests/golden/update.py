"""Write the golden files anew: `python tests/golden/update.py [CASE ...]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import shutil

from golden.cases import CASES, HERE, generate


def main(cases: list[str]) -> int:
    """Replace the expected files of the named cases, or of all."""
    for case in cases or CASES:
        files = generate(case)
        shutil.rmtree(HERE / case / "expected", ignore_errors=True)
        for name, text in files.items():
            path = HERE / case / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{case}: {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
