"""What the operator generates is what was reviewed."""

import pytest
import yaml

from golden.cases import CASES, HERE, generate


@pytest.mark.parametrize("case", CASES)
def test_generates_what_is_expected(case: str) -> None:
    files = generate(case)
    folder = HERE / case
    expected = {
        str(path.relative_to(folder)): path.read_text()
        for path in (folder / "expected").rglob("*")
        if path.is_file()
    }
    hint = "python tests/golden/update.py writes them anew"
    assert sorted(files) == sorted(expected), hint
    for name, text in files.items():
        assert text == expected[name], f"{case}/{name}: {hint}"


def test_there_are_cases() -> None:
    assert len(CASES) >= 6


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(case: str) -> None:
    """The rules of the restricted profile, read from the files a reviewer reads."""
    pods = 0
    for path in (HERE / case / "expected").glob("*.yaml"):
        template = yaml.safe_load(path.read_text()).get("spec", {}).get("template")
        if template is None:
            continue
        pods += 1
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert pods >= 4
