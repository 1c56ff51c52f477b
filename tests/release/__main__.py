"""`python -m release [TAG]`: exit status 0 when the tree can be released, 1 with what is amiss."""

import sys
from pathlib import Path

from release.check import problems, version

ROOT = Path(__file__).parents[2]

found = list(problems(ROOT, *sys.argv[1:2]))
for sentence in found:
    sys.stderr.write(f"release-check: {sentence}\n")
if not found:
    sys.stdout.write(f"{version(ROOT)} can be released: git tag v{version(ROOT)}\n")
sys.exit(1 if found else 0)
