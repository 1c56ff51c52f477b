"""The digest that identifies the sources of the BLS's library in packages and repositories.

It needs nothing but the standard library: `hatch_build.py` runs it while a package is built.
"""

import hashlib
from pathlib import Path

# What the library is made of; the crates' tests are not part of it.
CRATES = ("specdec-bls", "triton", "triton-sys")


def digest(workspace: Path) -> str:
    """sha256 (hex) of the sources, as the Dockerfile computes it with `sha256sum`.

    Args:
        workspace: the Rust workspace `operator/bls`.
    """
    files = [workspace / "Cargo.toml", workspace / "Cargo.lock"]
    for crate in CRATES:
        files += [workspace / crate / "Cargo.toml", *(workspace / crate / "src").rglob("*")]
    names = sorted(file.relative_to(workspace).as_posix() for file in files if file.is_file())
    sums = (hashlib.sha256((workspace / name).read_bytes()).hexdigest() for name in names)
    lines = (f"{value}  {name}\n" for value, name in zip(sums, names, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
