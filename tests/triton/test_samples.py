"""The samples' unmodified repositories on a CPU server: only the engines differ.

Each engine directory that a repository names holds a Reference engine of the shipped pair. The
server sees the volume at /models, as in the pod, so all paths stay the same. It loads, byte for
byte, what `specdec render` writes for a GPU.
"""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpc
import yaml

from specdec.tools.dry_run.plan import ResourcePlan
from support.golden_cases import SAMPLES
from support.planned_samples import NAMESPACE, planned
from support.shipped_pair import PAIR, build
from support.triton_client import ask, text
from support.triton_server import Server
from triton import inside
from triton.conftest import Serve

PROMPT = "def read_lines(path):\n"
BLS = "tensorrt_llm_bls"


def spec(sample: str) -> Any:
    return yaml.safe_load(SAMPLES[sample].read_text("utf-8"))["spec"]


def speculation(sample: str) -> Any:
    return spec(sample)["speculation"]


# test_llm_api.py covers the samples of the LLM API.
ENGINES = [
    sample for sample in SAMPLES if spec(sample)["runtime"]["backend"] not in ("PyTorch", "VLLM")
]


def of(*methods: str) -> list[str]:
    return sorted(sample for sample in ENGINES if speculation(sample)["method"] in methods)


def topology(sample: str) -> str:
    return str(speculation(sample).get("draftTarget", {}).get("topology", "SingleServer"))


TWO_SERVERS = [sample for sample in of("DraftTarget") if topology(sample) == "TwoServers"]
ONE_SERVER = [sample for sample in of("DraftTarget", "Lookahead") if sample not in TWO_SERVERS]


@dataclass(frozen=True)
class Volume:
    """A folder as the volume of all samples, with every engine and checkpoint that they name."""

    folder: Path
    root: Path
    built: Path

    @property
    def within(self) -> tuple[str, ...]:
        """Return the start of a command whose program sees the volume at /models."""
        here = (sys.executable, inside.__file__, str(self.root), str(self.folder))
        return (*NAMESPACE, *here)

    def fill(self, plan: ResourcePlan) -> None:
        """Put Reference engines at the plan's engine paths, and the pair at its checkpoints."""
        for entry, build_plan in plan.engines():
            engine = _engine(self.built, entry["role"], build_plan)
            _link(self.folder / "engines" / entry["key"], engine)
        for model in plan.status["models"]:
            if model["role"] in ("target", "draft"):
                _link(self.folder / "checkpoints" / model["digest"], PAIR / model["role"])


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    if not place.is_symlink():
        place.symlink_to(target)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    made = Volume(*(tmp_path_factory.mktemp(name) for name in ("volume", "root", "built")))
    tried = subprocess.run([*made.within, "/bin/true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no user namespace for a /models of our own: {tried.stderr!r:.200}")
    return made


def _engine(built: Path, role: str, build_plan: Mapping[str, Any]) -> Path:
    """Return a Reference engine for a build plan; plans with equal role and mode share it."""
    mode, shape = build_plan["speculativeDecodingMode"], build_plan["lookahead"] or {}
    names = ("windowSize", "ngramSize", "verificationSetSize")
    window, ngram, verification = (shape.get(name, 1) for name in names)
    name = f"{role}-{mode}-{window}-{ngram}-{verification}"
    if not (built / name).exists():
        build(built, name, role, mode=mode, sizes=(window, ngram, verification))
    return built / name


def answer(server: Server, model: str, *, stream: bool) -> list[Any]:
    values = {"text_input": PROMPT, "max_tokens": 24, "exclude_input_in_output": True}
    return ask(server.url, model, stream=stream, **values)


def test_there_are_samples_of_both_methods_and_topologies() -> None:
    assert len(of("DraftTarget")) >= 6
    assert len(of("Lookahead")) >= 2
    assert TWO_SERVERS


@pytest.mark.parametrize("sample", ONE_SERVER)
def test_a_sample_loads_unmodified_and_answers(sample: str, serve: Serve, volume: Volume) -> None:
    plan = planned(sample)
    volume.fill(plan)
    with serve(plan.files, volume.within) as server:
        for path, written in plan.files.items():
            assert (server.repository / path).read_text("utf-8") == written
        with grpc.InferenceServerClient(server.url) as client:
            for model in {path.split("/")[0] for path in plan.files}:
                assert client.is_model_ready(model)
        plain = text(answer(server, "ensemble", stream=False))
        assert plain
        assert text(answer(server, "ensemble", stream=True)) == plain
        rounds = server.metric("specdec_rounds_total")
        for stream in (False, True):
            parts = answer(server, BLS, stream=stream)
            assert text(parts) == plain
            assert (len(parts) > 1) == stream
        drafting = speculation(sample)["method"] == "DraftTarget"
        assert (server.metric("specdec_rounds_total") > rounds) == drafting


@pytest.mark.parametrize("sample", TWO_SERVERS)
def test_both_servers_of_a_sample_start(sample: str, serve: Serve, volume: Volume) -> None:
    plan = planned(sample)
    files: dict[str, dict[str, str]] = {"target": {}, "draft": {}}
    volume.fill(plan)
    for path, written in plan.files.items():
        role, _, inner = path.partition("/")
        files[role][inner] = written
    with ExitStack() as stack:
        servers = {
            role: stack.enter_context(serve(repository, volume.within))
            for role, repository in files.items()
        }
        for server in servers.values():
            with grpc.InferenceServerClient(server.url) as client:
                assert client.is_model_ready("tensorrt_llm")
            plain = text(answer(server, "ensemble", stream=False))
            assert plain
            for model, stream in (("ensemble", True), *((BLS, s) for s in (False, True))):
                assert text(answer(server, model, stream=stream)) == plain
