"""Damaged and hostile files of a source end the fetch Job with one sentence and no retry."""

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.jobs import remote_artifact, result, weights
from specdec.jobs.archive import unpack
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import inspect
from specdec.jobs.result import JobError
from unit.jobs.checkpoints import claim, config, run, tokenizer, write
from unit.jobs.termination import read_result
from unit.jobs.test_artifact_inspection import EAGLE, MEDUSA, pickled, put, shaped

FOLDERS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
NUMBERS = st.one_of(
    st.integers(-(2**80), 2**80), st.floats(), st.sampled_from([2**62, 2**63, 1e308, True])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | NUMBERS | st.text(max_size=8) | st.sampled_from(["\ud800", "default", "a b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def safetensors(header: Any, content: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def encrypted() -> bytes:
    """Return an archive with the flags of encrypted members."""
    data = bytearray(pickled("w"))
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def compressed_by(method: int) -> bytes:
    data = bytearray(pickled("w"))
    data[data.index(b"PK\x03\x04") + 8] = method
    data[data.index(b"PK\x01\x02") + 10] = method
    return bytes(data)


BROKEN_WEIGHTS = {
    "infinite-offset": safetensors({"w": {"shape": [1], "data_offsets": [0, float("inf")]}}),
    "infinite-shape": safetensors({"w": {"shape": [float("inf")], "data_offsets": [0, 0]}}),
    "fraction": safetensors({"w": {"shape": [1.5], "data_offsets": [0, 0]}}),
    "negative": safetensors({"w": {"shape": [-1], "data_offsets": [0, 0]}}),
    "text": safetensors({"w": {"shape": "12", "data_offsets": "00"}}),
    "more-than-64-bits": safetensors({"w": {"shape": [2**62, 8], "data_offsets": [0, 0]}}),
}
BROKEN_ARCHIVES = {
    "encrypted": encrypted(),
    "unknown-compression": compressed_by(77),
    "deflate-of-stored-bytes": compressed_by(8),
    "lzma-of-stored-bytes": compressed_by(14),
    "no-archive": b"PK\x03\x04",
}


@pytest.mark.parametrize("name", BROKEN_WEIGHTS)
def test_broken_header_of_weights_is_no_transient_error(name: str, tmp_path: Path) -> None:
    write(tmp_path / "sources/target/model", **{"model.safetensors": BROKEN_WEIGHTS[name]})
    code = run({"target": claim()}, tmp_path / "volume", tmp_path / "sources")
    require_corrupt(code, read_result())


@pytest.mark.parametrize("name", BROKEN_ARCHIVES)
def test_broken_pickled_weights_are_no_transient_error(name: str, tmp_path: Path) -> None:
    files = {"config.json": MEDUSA, "medusa_lm_head.pt": BROKEN_ARCHIVES[name]}
    put(tmp_path / "sources/heads/model", **files)
    write(tmp_path / "sources/target/model")
    plan = {"target": claim(), "heads": claim()}
    code = run(plan, tmp_path / "volume", tmp_path / "sources")
    require_corrupt(code, read_result())


def require_corrupt(code: int, answer: dict[str, Any]) -> None:
    assert code == result.PERMANENT
    assert answer["error"]["reason"] == "CheckpointCorrupt"
    assert answer["error"]["message"].startswith("the checkpoint is incomplete or damaged: ")


def test_engine_that_states_many_ranks_is_refused_at_once(tmp_path: Path) -> None:
    model = {"mapping": {"world_size": 2**62}}
    put(tmp_path, **{"config.json": {"pretrained_config": model, "build_config": {"a": 1}}})
    with pytest.raises(JobError, match="states 4611686018427387904 ranks"):
        inspect(tmp_path, ArtifactKind.ENGINE)


def test_name_of_a_head_with_thousands_of_digits_is_no_head(tmp_path: Path) -> None:
    name = f"{'1' * 5000}.0.linear.weight"
    put(tmp_path, **{"config.json": EAGLE, "a.safetensors": shaped(**{name: [1]})})
    assert inspect(tmp_path, ArtifactKind.HEADS).method == "Eagle"


@pytest.mark.parametrize("template", [["a", "b"], [{"name": "default", "template": "\ud800"}]])
def test_odd_chat_templates_are_facts_or_absent(tmp_path: Path, template: Any) -> None:
    write(tmp_path, **{"tokenizer_config.json": {"chat_template": template}})
    assert isinstance(inspect(tmp_path).chat_template or "", str)


@pytest.mark.parametrize("text", ["{", "[]", '{"digest": 3}', '{"digest": "../../x"}', "\xff"])
def test_damaged_index_of_a_download_is_fetched_again(tmp_path: Path, text: str) -> None:
    index = tmp_path / ".index-a.json"
    index.write_text(text, encoding="latin-1")
    assert remote_artifact.indexed_digest(index) is None


def refusal(call: Callable[[], Any]) -> JobError | None:
    """Return the sentence with which a call refuses files; any other error fails the test."""
    try:
        call()
    except JobError as error:
        return error
    return None


def judged(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> None:
    """Inspect a folder: facts of 64 bits, or one sentence about the files."""
    facts: dict[str, Any] = {}
    error = refusal(lambda: facts.update(inspect(folder, kind).shown()))
    if error is not None:
        assert str(error.reason) in ("CheckpointCorrupt",)
    json.dumps(facts, allow_nan=False)
    assert all(abs(v) < 2**63 for v in facts.values() if isinstance(v, int)), facts


@FOLDERS
@given(changed=st.dictionaries(st.sampled_from([*config(), "rope_scaling", "head_dim"]), JSON))
def test_no_configuration_causes_an_unexpected_error(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    write(tmp_path, **{"config.json": config(**changed)})
    judged(tmp_path)


@FOLDERS
@given(
    scaling=st.fixed_dictionaries(
        {"rope_type": JSON, "factor": NUMBERS, "original_max_position_embeddings": NUMBERS}
    ),
    positions=st.integers(1, 2**63 - 1),
)
def test_no_scaling_causes_an_unexpected_error(
    tmp_path: Path, scaling: dict[str, Any], positions: int
) -> None:
    changed = {"rope_scaling": scaling, "max_position_embeddings": positions}
    write(tmp_path, **{"config.json": config(**changed)})
    judged(tmp_path)


@FOLDERS
@given(changed=st.dictionaries(st.sampled_from(["model", "added_tokens"]), JSON), more=JSON)
def test_no_tokenizer_causes_an_unexpected_error(
    tmp_path: Path, changed: dict[str, Any], more: Any
) -> None:
    template = {"tokenizer_config.json": {"chat_template": more}}
    write(tmp_path, **{"tokenizer.json": tokenizer(**changed), **template})
    judged(tmp_path)


@FOLDERS
@given(
    header=JSON
    | st.dictionaries(
        st.text(max_size=4),
        st.fixed_dictionaries(
            {"shape": JSON | st.lists(NUMBERS, max_size=3), "data_offsets": st.lists(NUMBERS)}
        ),
    )
)
def test_no_header_causes_an_unexpected_error(tmp_path: Path, header: Any) -> None:
    write(tmp_path, **{"model.safetensors": safetensors(header)})
    judged(tmp_path)


@FOLDERS
@given(data=st.data())
def test_no_change_of_pickled_weights_causes_an_unexpected_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(damaged(data, pickled("w", "v")))
    error = refusal(lambda: weights.pickled_names(path))
    assert error is None or error.reason == "CheckpointCorrupt"


@FOLDERS
@given(data=st.data(), mode=st.sampled_from(["w", "w:gz"]))
def test_no_change_of_an_archive_causes_an_unexpected_error(
    tmp_path: Path, data: st.DataObject, mode: Any
) -> None:
    path = tmp_path / "layer"
    path.write_bytes(damaged(data, packed(mode)))
    error = refusal(lambda: unpack(path, tmp_path, ArtifactKind.CHECKPOINT, "the image"))
    known = ("CheckpointCorrupt", "SourceNotFound", "VolumeFull")
    assert error is None or str(error.reason) in known


def packed(mode: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name in ("config.json", "x" * 200 + ".json"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"{} "))
    return out.getvalue()


def damaged(data: st.DataObject, original: bytes) -> bytes:
    """Return a file with some bytes changed, and perhaps cut."""
    changed = bytearray(original)
    places = st.integers(0, len(original) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=6)):
        changed[place] = data.draw(st.sampled_from([0, 1, 8, 14, 0x7F, 0x80, 0xFF]))
    return bytes(changed[: data.draw(st.just(len(original)) | places)])


def test_a_member_of_an_archive_reports_no_library_error() -> None:
    """Check that the fuzzed archives are valid before they are damaged."""
    with zipfile.ZipFile(io.BytesIO(pickled("w"))) as archive:
        assert archive.testzip() is None
    with tarfile.open(fileobj=io.BytesIO(packed("w:gz"))) as unpacked:
        assert len(unpacked.getmembers()) == 2
