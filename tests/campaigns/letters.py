"""A tokenizer directory with one character per token, so that text and tokens correspond."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

# Ordinary text lacks these letters, and no tokenizer treats them as white space.
FIRST = 0x100


def write(folder: Path, size: int, end: int = 0) -> Path:
    """Write a tokenizer of `size` tokens, of which `end` ends an answer; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = {letter: token for token, letter in enumerate(text(range(size)))}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token=text([end])))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"eos_token": text([end])}
    (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
    return folder


def text(tokens: Sequence[int]) -> str:
    """Return the text of these tokens."""
    return "".join(chr(FIRST + token) for token in tokens)


def tokens(letters: str) -> list[int]:
    """Return the tokens of a text that `text` returned."""
    return [ord(letter) - FIRST for letter in letters]
