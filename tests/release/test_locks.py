"""Images install packages that are pinned by digest, in the versions of constraints.txt."""

import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from release.locks import ALONE, LOCKS, constrained, locked, required

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_digests_and_the_versions_of_the_constraints(name: str) -> None:
    versions = constrained(ROOT / "constraints.txt")
    for package, pin in locked(ROOT / name).items():
        assert pin.version == versions.get(package), f"{package}: `make lock` writes {name} anew"
        assert pin.digests


@pytest.mark.parametrize("name", [*LOCKS, *ALONE])
def test_lock_has_every_requirement_of_the_project(name: str) -> None:
    pins = locked(ROOT / name)
    for requirement in required(ROOT, name):
        package = canonicalize_name(requirement.name)
        assert package in pins, f"{package}: `make lock` writes {name} anew"
        assert pins[package].version in requirement.specifier


def test_images_install_packages_only_by_digest() -> None:
    installs = [
        command.strip()
        for line in re.findall(r"^RUN (.*)$", DOCKERFILE, re.MULTILINE)
        for command in line.split("&&")
        if re.search(r"\bpip3? install\b", command)
    ]
    locks = [file for command in installs for file in re.findall(r"-r (\S+)", command)]
    assert sorted(locks) == sorted((*LOCKS, *ALONE))
    for command in installs:
        options = {"--require-hashes", "--only-binary"}  # a source package would run its code
        if "-r" not in command.split():
            # This installs the project itself, with packages that are installed already.
            options = {"--no-deps", "--no-index", "--no-build-isolation"}
            assert command.split()[-1] == "."
        assert options <= set(command.split()), command


@pytest.mark.parametrize("name", ALONE)
def test_packages_for_other_images_come_without_their_requirements(name: str) -> None:
    """The images have these requirements: openai 1.109.1 requires what 1.107.3 does (PyPI)."""
    assert locked(ROOT / name).keys() == {canonicalize_name(r.name) for r in required(ROOT, name)}
    (install,) = re.findall(rf"pip install [^&\n]*-r {name}", DOCKERFILE)
    assert {"--no-deps", "--no-compile"} <= set(install.split())
    assert re.search(r"--target /opt/specdec/packages ", install)


def test_line_without_a_digest_is_refused(tmp_path: Path) -> None:
    digest = "--hash=sha256:" + "0" * 64
    (tmp_path / "r.txt").write_text(f"# x\na==1 \\\n    {digest}\nb==2\n")
    with pytest.raises(ValueError, match=r"r\.txt: no version with digests: b==2"):
        locked(tmp_path / "r.txt")
