"""Prints the tokenizer of a directory without tokenizer.json as JSON.

The backend runs this once, when it loads, because only transformers knows how to read all the
older formats. Code from a checkpoint is never run.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any


def read(directory: str) -> dict[str, Any]:
    """Tokenizer, end and padding of a directory, or one sentence on why there are none."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return {
            "error": f"tokenizer_dir {directory} has no tokenizer.json and transformers is not "
            "installed: point tokenizer_dir at a directory with tokenizer.json"
        }
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError):
        tokenizer = None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"error": f"tokenizer_dir {directory} holds no tokenizer: put tokenizer.json there"}
    return {
        "tokenizer": backend.to_str(),
        "end_id": tokenizer.eos_token_id,
        "pad_id": tokenizer.pad_token_id,
        "clean_up": bool(getattr(tokenizer, "clean_up_tokenization_spaces", False)),
    }


def main() -> int:
    """Write the result to standard output; messages of the libraries go to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        result = read(sys.argv[1])
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
