"""Write the golden files: `python tests/golden/update.py [CASE ...]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import shutil

from golden import migrated
from golden.stored import DIGESTS, digest_list, expected, files
from support.golden_cases import CASES


def main(cases: list[str]) -> int:
    """Replace the expected files of the named cases, or of all cases.

    Also name the cases that have a changed case as their base, or name no case.
    """
    for case in cases or CASES:
        texts = files(case)
        shutil.rmtree(expected(case), ignore_errors=True)
        for name, text in texts.items():
            path = expected(case) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{case}: {len(texts)} files")
    DIGESTS.write_text(digest_list())
    migrated.MIGRATIONS.write_text(migrated.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
