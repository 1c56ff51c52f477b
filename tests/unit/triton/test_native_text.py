"""The native BLS sees the same tokens as Python, and reads older tokenizers through transformers.

A file has the tokens that Python's library returns for texts with the shipped pair. This test
compares the file with Python; operator/bls/specdec-bls/tests/tokenizer.rs compares the native
library with the file. Write the file again with `PYTHONPATH=operator:tests python
tests/unit/triton/test_native_text.py`.
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.payload import MODELS

PAIR = MODELS.parent / "pair" / "target"
KNOWN = MODELS.parents[2] / "bls" / "specdec-bls" / "tests" / "data" / "shipped_tokens.json"
HELPER = MODELS / "tensorrt_llm_bls" / "tokenizer_json.py"
_ALPHABETS = (
    "abcdefghij ABC  0123.,;'\n\t",
    "äöüßéñçàœ ÅØ e\u0301",
    "漢字仮名交じり文한국어 العربية עברית हिन्दी",
    "🙂👍🏽👨\u200d👩\u200d👧🇩🇪 \ufffd\u00a0\u2028\u3000\x00\x7f",
)


def known() -> dict[str, list[list[Any]]]:
    """Return texts with their tokens, and random tokens with their texts."""
    from tokenizers import Tokenizer

    fast = Tokenizer.from_file(str(PAIR / "tokenizer.json"))
    numbers = random.Random(1)
    texts = ["", "<|endoftext|>", "a<|endoftext|> b", "don't we'll I'm"]
    texts += [_text(numbers, case) for case in range(300)]
    lists = [[numbers.randrange(1024) for _ in range(case % 40)] for case in range(200)]
    return {
        "encoded": [[text, fast.encode(text).ids] for text in texts],
        "decoded": [[fast.decode(ids), ids] for ids in lists],
    }


def _text(numbers: random.Random, case: int) -> str:
    signs = "".join(_ALPHABETS) if case % 5 == 4 else _ALPHABETS[case % 5]
    return "".join(numbers.choice(signs) for _ in range(numbers.randrange(40)))


def test_the_file_holds_the_tables_that_python_computes() -> None:
    assert json.loads(KNOWN.read_text("utf-8")) == known()


def _helper(tmp_path: Path, transformers: str) -> Any:
    """Return the output of the helper if `transformers` is a module with this source."""
    (tmp_path / "transformers.py").write_text(transformers)
    command = [sys.executable, str(HELPER), "/models/old"]
    run = subprocess.run(
        command, capture_output=True, check=True, env={"PYTHONPATH": str(tmp_path)}
    )
    return json.loads(run.stdout)


_READS = """
class Read:
    eos_token_id, pad_token_id, clean_up_tokenization_spaces = 2, None, True

    class backend_tokenizer:
        to_str = staticmethod(lambda: "{}")

class AutoTokenizer:
    @staticmethod
    def from_pretrained(directory, *, trust_remote_code, local_files_only):
        print("a library that talks")
        assert (directory, trust_remote_code, local_files_only) == ("/models/old", False, True)
        return Read
"""


def test_an_older_tokenizer_is_written_as_json(tmp_path: Path) -> None:
    assert _helper(tmp_path, _READS) == {
        "tokenizer": "{}",
        "end_id": 2,
        "pad_id": None,
        "clean_up": True,
    }


@pytest.mark.parametrize(
    ("transformers", "sentence"),
    [
        (
            "raise ImportError",
            "tokenizer_dir /models/old has no tokenizer.json and transformers is not installed: "
            "point tokenizer_dir at a directory with tokenizer.json",
        ),
        (
            _READS.replace("return Read", "raise OSError"),
            "tokenizer_dir /models/old holds no tokenizer: put tokenizer.json there",
        ),
        (
            _READS.replace("return Read", "return object()"),
            "tokenizer_dir /models/old holds no tokenizer: put tokenizer.json there",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, transformers: str, sentence: str
) -> None:
    assert _helper(tmp_path, transformers) == {"error": sentence}


if __name__ == "__main__":
    KNOWN.write_text(json.dumps(known(), ensure_ascii=True, separators=(",", ":")) + "\n")
