"""`python -m release [TAG [REGISTRY]]`: exit status 0 if the tree can be released, else 1."""

import sys
from pathlib import Path

from release.check import problems, version

ROOT = Path(__file__).parents[2]

sentences = list(problems(ROOT, *sys.argv[1:3]))
for sentence in sentences:
    sys.stderr.write(f"release-check: {sentence}\n")
if not sentences:
    sys.stdout.write(f"{version(ROOT)} can be released: git tag v{version(ROOT)}\n")
sys.exit(1 if sentences else 0)
