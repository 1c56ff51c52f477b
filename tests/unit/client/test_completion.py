"""Shell completion: resources by kubectl, files by the shell, entries and roles from lists."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SPECDEC = Path(sys.executable).with_name("specdec")
KUBECTL = """#!{python}
import sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]))
print("speculativemodel.specdec.dev/alpha\\nspeculativemodel.specdec.dev/beta")
{end}
"""


def suggested(line: str, folder: Path, end: str = "") -> list[str]:
    """Return what bash suggests for the last word of a line, with a fake kubectl on PATH."""
    program = folder / "kubectl"
    program.write_text(
        KUBECTL.format(python=sys.executable, log=str(folder / "log"), end=end), "utf-8"
    )
    program.chmod(0o755)
    path = f"{folder}:{SPECDEC.parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(folder)}
    source = subprocess.run(
        [SPECDEC],
        env={**environment, "_SPECDEC_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    typed = [*line.split(), ""] if line.endswith(" ") else line.split()
    setup = f"COMP_WORDS=({' '.join(map(shlex.quote, typed))}); COMP_CWORD={len(typed) - 1}"
    done = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f"{source}\n{setup}\n_specdec_completion specdec\n"
            'printf "%s\\n" "${COMPREPLY[@]}"; complete -p specdec',
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    *values, rule = done.stdout.splitlines()
    assert "-o default" in rule, "bash completes files where nothing is suggested"
    return [value for value in values if value]


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("command", ["status", "top", "logs", "report", "suspend", "rerun"])
def test_names_of_resources_are_suggested(command: str, tmp_path: Path) -> None:
    assert suggested(f"specdec {command} -n lab ", tmp_path) == ["alpha", "beta"]
    log = (tmp_path / "log").read_text("utf-8")
    assert log == "get --namespace=lab specm -o name --request-timeout=2s"


def test_addresses_of_resources_are_suggested(tmp_path: Path) -> None:
    assert suggested("specdec generate --url specm/a", tmp_path) == ["specm/alpha"]
    assert suggested("specdec generate --url localhost", tmp_path) == []


def test_without_a_cluster_nothing_is_suggested_or_printed(tmp_path: Path) -> None:
    failing = "import os; os.close(1); sys.exit('no cluster')"
    assert suggested("specdec status x", tmp_path, failing) == []


@pytest.mark.parametrize("line", ["specdec plan -f ", "specdec render -o man", "specdec status x"])
def test_files_are_left_to_the_shell(line: str, tmp_path: Path) -> None:
    assert suggested(line, tmp_path) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("specdec certify --only baseline,lo", ["baseline,logits", "baseline,lookahead"]),
        ("specdec certify --heads M", ["Medusa="]),
        ("specdec certify --backend P", ["PyTorch"]),
        ("specdec plan --checkpoint d", ["draft=", "draft-engine="]),
    ],
)
def test_methods_and_roles_are_suggested(line: str, expected: list[str], tmp_path: Path) -> None:
    assert suggested(line, tmp_path) == expected
