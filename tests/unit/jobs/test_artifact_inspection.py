"""The facts that the fetch Job reads from draft heads and prebuilt engines."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from specdec.jobs import checkpoint_config, result
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import inspect
from specdec.jobs.result import JobError
from unit.jobs.checkpoints import claim, config, run, write
from unit.jobs.termination import read_result


def shaped(**shapes: list[int]) -> bytes:
    """Return the content of a safetensors file with float16 tensors of these names and shapes."""
    header, start = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {
            "dtype": "F16",
            "shape": shape,
            "data_offsets": [start, start + size],
        }
        start += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(start)


def medusa(count: int, layers: int = 1) -> bytes:
    hidden = {f"{i}.{j}.linear.weight": [8, 8] for i in range(count) for j in range(layers)}
    return shaped(**hidden, **{f"{i}.{layers}.weight": [4, 8] for i in range(count)})


class Bomb:
    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def pickled(*names: str) -> bytes:
    """Return a file as torch.save writes it; loading its pickle would create a file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("x/data.pkl", pickle.dumps({**dict.fromkeys(names, 1), "bomb": Bomb()}))
    return out.getvalue()


def put(folder: Path, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        (folder / name).write_bytes(data)
    return folder


MEDUSA = {"medusa_num_heads": 2, "medusa_num_layers": 1}
EAGLE = config(num_hidden_layers=1)
REDRAFTER = {"num_draft_layers": 2, "hidden_size": 8, "vocab_size": 4, "rnn": True}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"config.json": MEDUSA, "medusa_lm_head.safetensors": medusa(5)},
            {"method": "Medusa", "numHeads": 5, "layers": 1, "hiddenSize": 8, "vocabSize": 4},
        ),
        (
            {
                "config.json": MEDUSA,
                "medusa_lm_head.pt": pickled(
                    *(f"{i}.{j}.linear.weight" for i in range(3) for j in range(2))
                ),
            },
            {"method": "Medusa", "numHeads": 3, "layers": 2},
        ),
        (
            {"config.json": EAGLE, "pytorch_model.bin": pickled("fc.weight")},
            {"method": "Eagle", "layers": 1, "hiddenSize": 8, "vocabSize": 4},
        ),
        (
            {
                "config.json": {**EAGLE, "draft_vocab_size": 2},
                "model.safetensors": shaped(d2t=[2]),
            },
            {"method": "Eagle3"},
        ),
        (
            {"config.json": REDRAFTER, "model.safetensors": shaped(w=[4, 8])},
            {"method": "ReDrafter", "layers": 2, "hiddenSize": 8, "parameters": 32},
        ),
    ],
)
def test_facts_of_draft_heads(
    files: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    facts = inspect(put(tmp_path / "h", **files), ArtifactKind.HEADS).shown()
    assert {key: facts.get(key) for key in expected} == expected
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": EAGLE}, "no .safetensors, .bin or .pt"),
        ({"config.json": EAGLE, "x.bin": b"nonsense"}, "x.bin is no weight file"),
        ({"config.json": EAGLE, "x.pt": b""}, "x.pt is no weight file"),
        ({"model.safetensors": shaped(w=[1])}, "no config.json"),
        ({"config.json": EAGLE, "m.safetensors": shaped(w=[4])[:-1]}, "header states"),
    ],
)
def test_damaged_heads_are_refused(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=message):
        inspect(put(tmp_path / "h", **files), ArtifactKind.HEADS)


def engine(ranks: int = 2, **build: Any) -> dict[str, Any]:
    mapping = {"world_size": ranks, "tp_size": ranks, "pp_size": 1}
    return {
        "version": "0.18.0",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "dtype": "float16",
            "vocab_size": 4,
            "mapping": mapping,
            "quantization": {"quant_algo": "FP8"},
        },
        "build_config": {"max_seq_len": 128, "max_draft_len": 8, **build},
    }


@pytest.mark.parametrize(
    ("model", "build", "drafts"),
    [
        ({}, {}, 0),
        ({}, {"max_draft_len": 8}, 8),
        ({"max_draft_len": 63}, {"max_draft_len": 0}, 63),
        ({"redrafter_num_beams": 5, "redrafter_draft_len_per_beam": 4}, {}, 20),
        ({"max_draft_len": "many"}, {"max_draft_len": -3}, 0),
    ],
)
def test_draft_length_of_an_engine(
    model: dict[str, Any], build: dict[str, Any], drafts: int
) -> None:
    assert checkpoint_config.draft_length(model, build) == drafts


def test_prebuilt_engine_needs_no_weights(volume: Path, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    folder = write(sources / "target" / "model")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    files = {f"rank{r}.engine": b"engine" for r in range(2)}
    put(sources / "target-engine" / "e", **{"config.json": engine()}, **files, other=b"no")
    plan = {"target": claim(), "target-engine": claim("e")}

    assert run(plan, volume, sources) == result.PERMANENT
    assert run(plan, volume, sources, withoutWeights=["target"]) == 0
    assert "parameters" not in read_result()["models"]["target"]["facts"]

    fetched = read_result()["models"]["target-engine"]
    assert fetched["facts"]["tensorParallel"] == 2
    assert fetched["facts"]["maxDraftLen"] == 8
    assert fetched["facts"]["quantization"] == "FP8"
    folder = volume / "checkpoints" / fetched["digest"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "rank0.engine",
        "rank1.engine",
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": engine(), "rank0.engine": b"x"}, "2 ranks and it has 1 files"),
        ({"config.json": engine(1), "rank1.engine": b"x"}, "1 ranks and it has 1 files"),
        ({"config.json": config(), "rank0.engine": b"x"}, "the directory that trtllm-build wrote"),
    ],
)
def test_incomplete_engine_is_refused(
    files: dict[str, Any], message: str, volume: Path, tmp_path: Path
) -> None:
    put(tmp_path / "target-engine" / "e", **files)
    assert run({"target-engine": claim("e")}, volume) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointCorrupt"
    assert message in error["message"]


def test_all_roles_fit_a_termination_message(volume: Path, tmp_path: Path) -> None:
    for role in ("target", "draft"):
        write(tmp_path / role / "model", **{"tokenizer.model": role.encode()})
        put(
            tmp_path / f"{role}-engine" / "model",
            **{"config.json": engine(1), "rank0.engine": role.encode()},
        )
    files = {"config.json": MEDUSA, "medusa_lm_head.safetensors": medusa(5)}
    put(tmp_path / "heads" / "model", **files)
    for number in range(90):
        (volume / "engines" / f"{number:064x}").mkdir(parents=True)
        (volume / "engines" / f"{number:064x}" / "manifest.json").touch()
    roles = ("target", "draft", "heads", "target-engine", "draft-engine")
    assert run({role: claim() for role in roles}, volume) == 0
    answer = read_result()
    assert set(answer["models"]) == set(roles)
    assert len(answer["engines"]) >= 25
