"""One tokenizer for every text model, so that all of them turn text into the same tokens.

The fast path needs `tokenizers` alone and reads `tokenizer.json`; a directory without it is
opened with transformers where that is installed. Code from a checkpoint is never run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from specdec_longest import bytes_per_learned_token, bytes_per_token

# The limit of a prompt in bytes if the longest sequence or the longest token is unknown, and the
# lowest limit if both are known. The BLS has the same limits
# (operator/bls/specdec-bls/src/request/limits.rs).
_UNKNOWN_BYTES = 1 << 20
_LEAST_BYTES = 64 << 10
# Items of one list of words in a request, and bytes of all of them.
_MOST_ITEMS = 1024
_MOST_ITEM_BYTES = 64 << 10
_FALSE = frozenset({"false", "0", "f", "n", "no"})
_NOT_A_TOKEN = -1


class TextError(ValueError):
    """Text or a tokenizer directory that cannot be used; the message is one sentence."""


class Tokenizer:
    """Text to token ids and back.

    Args:
        directory: a Hugging Face model directory.
        add_special_tokens: whether prompts get the tokenizer's own special tokens.
        skip_special_tokens: whether special tokens are left out of decoded text.

    Attributes:
        end_id, pad_id: from the tokenizer; pad falls back to end, both to -1 when it has none.
        size: number of token ids, added tokens included.
        bytes_per_token: bytes of text that one token stands for at most, 0 where unknown.

    Raises:
        TextError: the directory holds no tokenizer that can be read.
    """

    def __init__(
        self, directory: str, *, add_special_tokens: bool = True, skip_special_tokens: bool = True
    ) -> None:
        folder = Path(directory)
        self._add_special = add_special_tokens
        self._skip_special = skip_special_tokens
        if (folder / "tokenizer.json").is_file():
            self._open_fast(folder)
        else:
            self._open_transformers(folder)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        return self._encode(text, self._add_special)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; ids outside the vocabulary stand for nothing."""
        return self._decode([int(token) for token in ids if 0 <= token < self.size])

    def word_list(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of stop words or bad words, without special tokens; skips empty texts."""
        encoded = (self._encode(text, False) for text in texts if text)
        return [ids for ids in encoded if ids]

    def bias(self, texts: Sequence[str], weights: Sequence[float]) -> NDArray[np.float32]:
        """Weight of every token of the vocabulary: a word's weight goes to each of its tokens.

        Raises:
            TextError: not one weight for every word, or a token outside of the vocabulary.
        """
        if len(texts) != len(weights):
            raise TextError(
                f"embedding_bias_words has {len(texts)} words and embedding_bias_weights "
                f"{len(weights)} weights: send one weight for every word"
            )
        bias = np.zeros(self.size, np.float32)
        for word, weight in zip(texts, weights, strict=True):
            for token in self._encode(word, False):
                if token >= self.size:
                    raise TextError(
                        f"embedding_bias_words has a word whose token {token} lies outside of the "
                        f"vocabulary of {self.size}: leave {word!r} out"
                    )
                bias[token] += weight
        return bias

    def _open_fast(self, folder: Path) -> None:
        from tokenizers import Tokenizer as FastTokenizer

        try:
            fast = FastTokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exception for a broken file
            raise TextError(f"{folder / 'tokenizer.json'} is no tokenizer: {error}") from error
        # A file may carry the truncation of its training; a prompt must arrive whole.
        fast.no_truncation()
        fast.no_padding()
        self.size = int(fast.get_vocab_size(with_added_tokens=True))
        self.bytes_per_token = bytes_per_token(fast)
        self._encode: Callable[[str, bool], list[int]] = lambda text, special: list(
            fast.encode(text, add_special_tokens=special).ids
        )
        self._decode: Callable[[list[int]], str] = lambda ids: str(
            fast.decode(ids, skip_special_tokens=self._skip_special)
        )
        named = _special_tokens(folder)
        self.end_id = _token_id(fast.token_to_id, named.get("eos_token"))
        if self.end_id == _NOT_A_TOKEN:
            self.end_id = _configured_end(folder)
        self.pad_id = _token_id(fast.token_to_id, named.get("pad_token"))
        if self.pad_id == _NOT_A_TOKEN:
            self.pad_id = self.end_id

    def _open_transformers(self, folder: Path) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise TextError(
                f"tokenizer_dir {folder} has no tokenizer.json and transformers is not installed: "
                "point tokenizer_dir at a directory with tokenizer.json"
            ) from error
        try:
            slow = AutoTokenizer.from_pretrained(
                str(folder), trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise TextError(
                f"tokenizer_dir {folder} holds no tokenizer: put tokenizer.json there"
            ) from error
        self.size = len(slow)
        self.bytes_per_token = bytes_per_learned_token(slow.get_vocab())
        self._encode = lambda text, special: list(slow.encode(text, add_special_tokens=special))
        self._decode = lambda ids: str(slow.decode(ids, skip_special_tokens=self._skip_special))
        end, pad = slow.eos_token_id, slow.pad_token_id
        self.end_id = _NOT_A_TOKEN if end is None else int(end)
        self.pad_id = self.end_id if pad is None else int(pad)


class TextLimits:
    """How much text a request may bring, which is known before any of it becomes tokens.

    Args:
        max_seq_len: the longest sequence, tokens; 0 where it is unknown.
        bytes_per_token: of the tokenizer.
    """

    def __init__(self, max_seq_len: int, bytes_per_token: int) -> None:
        most = max_seq_len * bytes_per_token
        self._max_seq_len = max_seq_len
        self._prompt = max(most, _LEAST_BYTES) if most else _UNKNOWN_BYTES

    def prompts(self, texts: Iterable[bytes | str], field: str) -> None:
        """Refuse a prompt that no tokens of the longest sequence could hold.

        Raises:
            TextError: one of the texts has too many bytes.
        """
        size = max((_size(text) for text in texts), default=0)
        if size > self._prompt:
            raise TextError(
                f"{field} has {size} bytes, more than the limit of {self._prompt} for a prompt: "
                "send a shorter prompt"
            )

    def tokens(self, count: int, field: str) -> None:
        """Refuse a prompt that leaves no token for an answer.

        The engine may have room for draft tokens beyond the longest sequence. Without this check,
        it would accept such a prompt.

        Raises:
            TextError: the prompt has too many tokens.
        """
        if self._max_seq_len and count >= self._max_seq_len:
            raise TextError(
                f"{field} has {count} tokens, more than the limit of {self._max_seq_len - 1} for "
                "a prompt: send a shorter prompt"
            )

    @staticmethod
    def items(texts: Sequence[bytes | str], field: str) -> None:
        """Refuse too long a list of stop words or bad words: each item costs time at each token.

        Raises:
            TextError: too many items, or too many bytes in all of them.
        """
        if len(texts) > _MOST_ITEMS:
            raise TextError(
                f"{field} has {len(texts)} items, more than the limit of {_MOST_ITEMS} in a "
                "request: send fewer"
            )
        size = sum(map(_size, texts))
        if size > _MOST_ITEM_BYTES:
            raise TextError(
                f"{field} has {size} bytes, more than the limit of {_MOST_ITEM_BYTES} in a "
                "request: send fewer or shorter items"
            )


def _size(text: bytes | str) -> int:
    return len(text.encode() if isinstance(text, str) else text)


def word_array(items: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Word list as the engines take it: [2, n], row 0 all ids, row 1 end offsets, then -1."""
    flat = [token for item in items for token in item]
    offsets = np.cumsum([len(item) for item in items], dtype=np.int64).tolist()
    return np.array([flat, offsets + [-1] * (len(flat) - len(offsets))], np.int32).reshape(2, -1)


def text_of(value: bytes | str, field: str) -> str:
    """A Triton string element as text.

    Raises:
        TextError: bytes that are not UTF-8.
    """
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"{field} is not UTF-8 at byte {error.start}: send UTF-8 text") from error


def is_true(value: str) -> bool:
    """A boolean parameter: every value that does not mean false is true."""
    return value.strip().lower() not in _FALSE


def parameter(model_config: dict[str, Any], key: str, default: str = "") -> str:
    """String value of a model's parameter; an empty or unfilled one counts as absent."""
    value = str(model_config.get("parameters", {}).get(key, {}).get("string_value", ""))
    return default if not value or value.startswith("${") else value


def number(model_config: dict[str, Any], key: str) -> int:
    """Whole number of a model's parameter; 0 where it is absent.

    Raises:
        TextError: it is no whole number of 0 or more.
    """
    value = parameter(model_config, key, "0")
    if not value.strip().isdecimal():
        raise TextError(f"{key} is {value}: set it to a whole number of 0 or more")
    return int(value)


def _special_tokens(folder: Path) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        content = _json(folder / file)
        named |= {key: content[key] for key in ("eos_token", "pad_token") if content.get(key)}
    return named


def _configured_end(folder: Path) -> int:
    for file in ("generation_config.json", "config.json"):
        end = _json(folder / file).get("eos_token_id")
        if isinstance(end, list):
            end = end[0] if end else None
        if isinstance(end, int):
            return end
    return _NOT_A_TOKEN


def _token_id(lookup: Callable[[str], int | None], token: Any) -> int:
    content = token.get("content") if isinstance(token, dict) else token
    token_id = lookup(content) if isinstance(content, str) else None
    return _NOT_A_TOKEN if token_id is None else int(token_id)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise TextError(f"{path} is no JSON: {error}") from error
    return content if isinstance(content, dict) else {}
