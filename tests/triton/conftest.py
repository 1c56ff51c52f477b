"""Servers that all tests share: one per layout, with engines built from the shipped pair."""

import json
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from specdec.backends.methods import lookahead
from specdec.triton.launch import Tls
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support import certificates
from support.certificates import Certificates
from support.shipped_pair import LIMITS, MAX_DRAFT_TOKENS, PAIR, build
from support.triton_server import Server, installed_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as a test that needs the server."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.triton)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of each server that ended by itself to the report of a failed test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Server) and value.status() is not None:
                title = f"{name} ended with {value.status()}"
                report.sections.append((title, value.log_summary()))
    return report


@dataclass(frozen=True)
class Engines:
    """The directories of the engines."""

    target: Path
    draft: Path
    lookahead: Path


@pytest.fixture(scope="session")
def executable() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"the tritonserver wheel is for Linux x86-64, not {sys.platform}")
    return installed_server()


Serve = Callable[..., Server]


@pytest.fixture(scope="session")
def serve(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Return a function that makes a server in a new folder; `Server` explains its options."""

    def made(
        repository: RepositoryPlan | Mapping[str, str], within: Sequence[str] = (), **options: Any
    ) -> Server:
        files = render(repository) if isinstance(repository, RepositoryPlan) else repository
        return Server(executable, files, tmp_path_factory.mktemp("server"), within, **options)

    return made


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    folder = tmp_path_factory.mktemp("engines")
    return Engines(
        target=build(folder, "target", "target", mode="draft_tokens_external"),
        draft=build(folder, "draft", "draft", mode="none"),
        lookahead=build(folder, "lookahead", "target", mode="lookahead_decoding"),
    )


@pytest.fixture(scope="session")
def draft_target_plan(engines: Engines) -> RepositoryPlan:
    """Return a plan for 0.19.0 with streaming and, by default, with speculation."""
    return RepositoryPlan(
        version="0.19.0",
        tokenizer_dir=str(PAIR / "target"),
        target=ModelPlan(str(engines.target), (0,), max_tokens_in_paged_kv_cache=16384),
        draft=ModelPlan(str(engines.draft), (0,), max_tokens_in_paged_kv_cache=16384),
        max_batch_size=16,
        draft_tokens=4,
        max_draft_tokens=MAX_DRAFT_TOKENS,
        draft_ahead=2,
        rows_per_call=16,
        max_seq_len=LIMITS["maxSeqLen"],
    )


@pytest.fixture(scope="session")
def server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the draft/target pair for 0.19.0, with streaming."""
    with serve(draft_target_plan) as running:
        yield running


@pytest.fixture(scope="session")
def older_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the draft/target pair in the layout of 0.18.0, without streaming."""
    plan = replace(draft_target_plan, version="0.18.0", decoupled=False)
    with serve(plan) as running:
        yield running


@pytest.fixture(scope="session")
def newer_plan(draft_target_plan: RepositoryPlan) -> RepositoryPlan:
    """Return a plan for 1.2.1 with streaming and, by default, with speculation."""
    return replace(draft_target_plan, version="1.2.1")


@pytest.fixture(scope="session")
def newer_server(serve: Serve, newer_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the draft/target pair in the layout of 1.2.1, with streaming."""
    with serve(newer_plan) as running:
        yield running


@pytest.fixture(scope="session")
def lookahead_server(
    serve: Serve, engines: Engines, draft_target_plan: RepositoryPlan
) -> Iterator[Server]:
    plan = replace(
        draft_target_plan,
        draft=None,
        target=ModelPlan(
            str(engines.lookahead),
            max_tokens_in_paged_kv_cache=16384,
            parameters=lookahead.parameters(4, 3, 4),
        ),
        draft_tokens=0,
    )
    with serve(plan) as running:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(
    serve: Serve, draft_target_plan: RepositoryPlan, made: Certificates
) -> Iterator[Server]:
    """Yield a server of the pair with TLS, open to every client."""
    tls = Tls(made.server.certificate, made.server.key)
    with serve(draft_target_plan, tls=tls) as running:
        yield running


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [str(json.loads(line)["prompt"]) for line in lines[:50]]
