"""`python -m release [TAG]`: exit status 0 when the tree can be released, 1 with the problems."""

import sys
from pathlib import Path

from release.check import problems, version

ROOT = Path(__file__).parents[2]

sentences = list(problems(ROOT, *sys.argv[1:2]))
for sentence in sentences:
    sys.stderr.write(f"release-check: {sentence}\n")
if not sentences:
    sys.stdout.write(f"{version(ROOT)} can be released: git tag v{version(ROOT)}\n")
sys.exit(1 if sentences else 0)
