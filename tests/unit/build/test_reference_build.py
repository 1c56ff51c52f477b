"""The Reference build: its files, and no unfinished engine under the final name."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cluster.processes import DEADLINE_SECONDS
from support.oracle import Tiny
from support.reference_engines import BUILD, open_engine, plan
from unit.build.reference import run


def test_an_engine_is_complete_and_described(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    status, message, text = run(plan(checkpoint, output), tmp_path)
    assert status == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json",
        "manifest.json",
        "rank0.engine",
    ]
    assert [path.name for path in output.parent.iterdir()] == ["k1"]
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    for name, facts in manifest["files"].items():
        contents = (output / name).read_bytes()
        assert facts == {"sha256": hashlib.sha256(contents).hexdigest(), "bytes": len(contents)}
    engine = message["engine"]
    assert engine["key"] == manifest["key"] == "k1"
    assert engine["bytes"] == sum(entry["bytes"] for entry in manifest["files"].values())
    assert (engine["maxDraftLen"], engine["vocabSize"]) == (16, 97)
    assert re.search(r"^progress phase=convert percent=100$", text, re.MULTILINE)
    assert len(json.dumps(message)) < 4096


def test_config_has_the_keys_of_a_tensorrt_llm_engine(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    run(plan(checkpoint, output), tmp_path)
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    assert config["version"] == "0.19.0"
    model, build = config["pretrained_config"], config["build_config"]
    assert model["architecture"] == "LlamaForCausalLM"
    assert (model["vocab_size"], model["num_key_value_heads"], model["head_size"]) == (97, 2, 8)
    assert model["mapping"]["world_size"] == 1
    assert (build["max_batch_size"], build["max_seq_len"], build["max_draft_len"]) == (8, 384, 16)
    assert build["speculative_decoding_mode"] == 2
    assert build["plugin_config"]["use_paged_context_fmha"] is True


def test_a_complete_engine_is_not_built_again(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    run(plan(checkpoint, output), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    shutil.rmtree(checkpoint)
    status, message, text = run(plan(checkpoint, output), tmp_path)
    assert status == 0
    assert "already complete" in text
    assert message["engine"]["key"] == "k1"
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before


def test_leftovers_of_a_killed_build_are_removed(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    (output.parent / ".k1.abcd.tmp").mkdir(parents=True)
    (output.parent / ".k2.abcd.tmp").mkdir()
    output.mkdir()
    (output / "rank0.engine").write_bytes(b"half")
    assert run(plan(checkpoint, output), tmp_path)[0] == 0
    assert sorted(path.name for path in output.parent.iterdir()) == [".k2.abcd.tmp", "k1"]
    assert (output / "manifest.json").is_file()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Path]:
    """Yield a checkpoint whose build takes long enough to stop it in the middle."""
    tiny = Tiny(vocab=2000, hidden=1024, intermediate=2048, layers=4, heads=8, kv_heads=8)
    yield tiny.write(tmp_path / "checkpoints" / "slow")
    shutil.rmtree(tmp_path / "checkpoints")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_build_publishes_nothing_and_the_next_one_succeeds(
    number: signal.Signals, slow: Path, output: Path, tmp_path: Path
) -> None:
    source = tmp_path / "plan.json"
    source.write_text(json.dumps(plan(slow, output)), encoding="utf-8")
    log = tmp_path / "termination.json"
    process = subprocess.Popen(
        [sys.executable, str(BUILD), "--plan", str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"SPECDEC_TERMINATION_LOG": str(log)},
    )
    assert process.stdout is not None
    for line in process.stdout:  # wait until the build has written a part of the weights
        if re.fullmatch(r"progress phase=convert percent=[1-9]\d?\n", line):
            break
    process.send_signal(number)
    process.communicate(timeout=DEADLINE_SECONDS)
    assert not output.exists()
    if number == signal.SIGTERM:
        assert process.returncode == 1
        assert list(output.parent.iterdir()) == []
        assert json.loads(log.read_text(encoding="utf-8"))["error"]["reason"] == "Cancelled"
    assert run(plan(slow, output), tmp_path)[0] == 0
    assert [path.name for path in output.parent.iterdir()] == ["k1"]


def test_a_full_volume_is_reported(checkpoint: Path, output: Path, tmp_path: Path) -> None:
    """The engine's file is a link to /dev/full, where every write fails with ENOSPC."""
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import engine_file, pathlib, "
        "build_engine; real = engine_file.write\n"
        "def full(path, *rest):\n"
        "    path.symlink_to('/dev/full'); opened = pathlib.Path.open\n"
        "    pathlib.Path.open = lambda self, mode='r', *a, **k: "
        "opened(self, mode.replace('x', 'w'), *a, **k)\n"
        "    real(path, *rest)\n"
        "engine_file.write = full; sys.exit(build_engine.main())"
    )
    log = tmp_path / "termination.json"
    result = subprocess.run(
        [sys.executable, "-c", program, str(BUILD.parent), "--plan", "-"],
        input=json.dumps(plan(checkpoint, output)),
        text=True,
        capture_output=True,
        check=False,
        env={"SPECDEC_TERMINATION_LOG": str(log)},
    )
    error = json.loads(log.read_text(encoding="utf-8"))["error"]
    assert result.returncode == 1
    assert error["reason"] == "VolumeFull"
    assert "enlarge the claim" in error["message"]
    assert list(output.parent.iterdir()) == []


def test_all_spellings_of_weights_give_one_engine(
    checkpoint: Path, output: Path, tmp_path: Path
) -> None:
    """A single file or shards, and float32 or bfloat16 of equal values, give the same engine."""
    weights = {
        name: (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        for name, array in load_file(checkpoint / "model.safetensors").items()
    }
    save_file(weights, checkpoint / "model.safetensors")
    run(plan(checkpoint, output), tmp_path)
    expected = (output / "rank0.engine").read_bytes()
    _write_sharded_bfloat16(checkpoint, weights)
    other = output.with_name("k2")
    status, message, _ = run(plan(checkpoint, other), tmp_path)
    assert status == 0, message
    assert (other / "rank0.engine").read_bytes() == expected
    assert open_engine(other).config.vocab_size == 97


def _write_sharded_bfloat16(checkpoint: Path, weights: dict[str, Any]) -> None:
    (checkpoint / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        blob = b""
        for name in part:
            data = (weights[name].view(np.uint32) >> 16).astype(np.uint16).tobytes()
            header[name] = {
                "dtype": "BF16",
                "shape": list(weights[name].shape),
                "data_offsets": [len(blob), len(blob) + len(data)],
            }
            blob += data
            index[name] = file
        text = json.dumps(header).encode()
        (checkpoint / file).write_bytes(len(text).to_bytes(8, "little") + text + blob)
    path = checkpoint / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}), encoding="utf-8")
