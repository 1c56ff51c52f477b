"""The tutorial on a real API server: kubectl prints every output that the page shows.

The tests simulate pods and the results of their programs, with the facts of the shipped pair.
"""

import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import built, claim, published, two, verified
from specdec.api import names
from specdec.jobs import inspection
from specdec.jobs.artifact_kind import ArtifactKind
from support.quickstarts import ROOT
from support.shipped_pair import PAIR

pytestmark = pytest.mark.controlplane

NAME = "reference-draft-target"
PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
# The verification result that the page shows.
MEASURED: dict[str, Any] = {
    "draftedTokens": 636,
    "acceptedTokens": 337,
    "acceptancePercent": 53,
    "tokensPerRound": "3.01",
    "speedupPercent": 48,
}


def section(title: str) -> tuple[list[str], list[str]]:
    """Return the kubectl commands of a section, and its text blocks: the expected outputs."""
    given = re.compile("kubectl |specdec [a-z]+ ")
    (body,) = re.findall(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", PAGE)
    blocks = re.findall(r"(?ms)^```(.*?)\n(.*?)^```$", body)
    lines = [line for _, block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("kubectl ")]
    texts = [text for kind, text in blocks if kind != "sh" and not given.match(text)]
    return commands, texts


def arguments(command: str) -> list[str]:
    return [word for word in shlex.split(command)[1:] if word != "-w"]


def rows(table: str) -> list[list[str]]:
    """Return the rows of `kubectl get specm` as cells, without empty cells and the age."""
    return [re.split(r" {2,}", line.strip())[:-1] for line in table.splitlines()]


@contextlib.contextmanager
def watched(lab: Lab, table: str, file: Path) -> Iterator[None]:
    """Run `kubectl get specm NAME -w` for the block, and until it has printed the page's rows."""
    argv = [*lab.plane.kubectl_argv(), "-n", lab.namespace, "get", "specm", NAME, "-w"]
    with file.open("w") as output, subprocess.Popen(argv, stdout=output) as process:
        try:
            yield
            expected = rows(table)

            def printed() -> bool:
                seen = iter(rows(file.read_text()))
                return all(row in seen for row in expected)

            until(printed, lambda: f"{expected} in this order: {file.read_text()}")
        finally:
            process.terminate()


def facts() -> Object:
    """Return the result of the fetch Job for the shipped pair."""
    roles = ("target", "draft")
    inspected = {role: inspection.inspect(PAIR / role, ArtifactKind.CHECKPOINT) for role in roles}
    models: dict[str, Any] = {
        role: {
            "digest": names.digest(role),
            "revision": "",
            "bytes": 3_000_000,
            "facts": read.shown(),
        }
        for role, read in inspected.items()
    }
    return {"models": models, "engines": []}


def build(lab: Lab) -> None:
    jobs = until(lambda: two(lab.jobs("engine")), "two build Jobs")
    # The operator must see a running pod before the Job ends, else the resource skips the reason.
    lab.wait(NAME, "EnginesReady", "False", "Building")
    for job in jobs:
        built(lab, job)


def publish(lab: Lab, known: tuple[str, ...] = ()) -> None:
    """End the publish Job once the resource has the reason Publishing, as in `build`."""
    lab.wait(NAME, "RepositoryReady", "False", "Publishing")
    published(lab, known)


def test_reader_gets_the_outputs_of_the_tutorial(lab: Lab, tmp_path: Path) -> None:
    lab.apply(claim("reference-pair"))
    (first, second), (table,) = section("Apply, and watch the stages")
    lab.kubectl(*arguments(first.replace("manifests/", f"{ROOT}/manifests/")))
    assert second == f"kubectl get specm {NAME} -w"
    with watched(lab, table, tmp_path / "first"):
        lab.wait(NAME, "ModelsFetched", "False", "Fetching")
        lab.finish(lab.job("fetch"), facts())
        build(lab)
        publish(lab)
        lab.wait(NAME)
        verified(lab, **MEASURED)
    (command,), (conditions,) = section("Read the conditions")
    assert lab.kubectl(*arguments(command)) == conditions

    jobs = tuple(lab.jobs("publish"))
    (first, second), tables = section("Change the draft length")
    with watched(lab, tables[-1], tmp_path / "second"):
        lab.kubectl(*arguments(first))
        publish(lab, jobs)
    assert len(lab.jobs("engine")) == 2

    (refusal, change, get, message, restore), outputs = section("Break it")
    assert f"{lab.refused(*arguments(refusal))}\n" == outputs[0]
    lab.kubectl(*arguments(change))
    lab.wait(NAME, "Compatible", "False")
    until(
        lambda: rows(lab.kubectl(*arguments(get))) == rows(outputs[2]),
        lambda: f"{outputs[2]}: {lab.kubectl(*arguments(get))}",
    )
    assert f"{lab.kubectl(*arguments(message))}\n" == outputs[3]
    lab.kubectl(*arguments(restore))
    lab.wait(NAME)
    assert len(lab.jobs("engine")) == 2

    delete, _ = section("Clean up")[0]
    lab.kubectl(*arguments(delete))
    until(lambda: lab.missing("pvc", f"{NAME}-models"), "no claim of the resource")
    assert lab.get("pvc", "reference-pair") is not None
