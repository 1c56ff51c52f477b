"""Small valid checkpoint directories, and a helper that runs the fetch Job like its pod."""

import json
import struct
from pathlib import Path
from typing import Any

from specdec.jobs import fetch

VOCABULARY = {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}


def config(**changed: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 4,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "torch_dtype": "float16",
        "eos_token_id": 0,
        **changed,
    }


def tokenizer(vocabulary: dict[str, int] | None = None, **changed: Any) -> dict[str, Any]:
    model = {"vocab": vocabulary or VOCABULARY, "merges": ["a b"]}
    added = [{"id": 0, "content": "<|endoftext|>", "special": True}]
    return {"model": model, "added_tokens": added, **changed}


def tensors(*values: bytes) -> bytes:
    """Return the content of a safetensors file with float16 vectors."""
    header, start = {}, 0
    for number, value in enumerate(values):
        header[f"t{number}"] = {
            "dtype": "F16",
            "shape": [len(value) // 2],
            "data_offsets": [start, start + len(value)],
        }
        start += len(value)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(values)


def write(folder: Path, **files: Any) -> Path:
    """Write a complete checkpoint; `files` replaces files by name (`None` omits a file)."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "config.json": config(),
        "tokenizer.json": tokenizer(),
        "model.safetensors": tensors(b"\1\2" * 512),
        **files,
    }
    for name, value in content.items():
        if isinstance(value, bytes):
            (folder / name).write_bytes(value)
        elif value is not None:
            (folder / name).write_text(json.dumps(value))
    return folder


def run(
    plan: dict[str, Any],
    volume: Path,
    sources: Path | None = None,
    allowed: tuple[str, ...] = ("127.0.0.1/32",),
    **options: Any,
) -> int:
    """Run the fetch Job; `allowed` opens the loopback address of the tests' servers.

    `sources` has the claims of sources as folders; None is the folder that has the volume.
    """
    paths = ["--volume", str(volume), "--sources", str(sources or volume.parent)]
    networks = [argument for network in allowed for argument in ("--allow", network)]
    return fetch.main(["--plan", json.dumps({"models": plan, **options}), *paths, *networks])


def claim(path: str = "model") -> dict[str, Any]:
    return {"pvc": {"claimName": "source", "path": path}}


def visible(volume: Path) -> list[str]:
    return [p.name for p in (volume / "checkpoints").iterdir() if not p.name.startswith(".")]
