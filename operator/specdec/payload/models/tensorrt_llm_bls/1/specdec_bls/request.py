"""Reads a Triton request into tasks, one per prompt, and refuses what cannot be served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from specdec_text import TextError, Tokenizer, text_of, word_array

from specdec_bls.task import Task

# Client's name -> engine's name, for values that every engine call carries unchanged.
_SAMPLING = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "temperature": "temperature",
    "length_penalty": "len_penalty",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
_SEED_NAMES = ("random_seed", "seed")
# Without any of these the engines take the likeliest token and draw nothing.
_DRAWS = ("top_k", "top_p", "temperature", *_SEED_NAMES)
# Values only the target can honour: client's name -> (engine's name, reason of the fallback).
_TARGET_ONLY = {
    "prompt_embedding_table": ("prompt_embedding_table", "prompt_table"),
    "prompt_vocab_size": ("prompt_vocab_size", "prompt_table"),
    "lora_task_id": ("lora_task_id", "lora"),
    "lora_weights": ("lora_weights", "lora"),
    "lora_config": ("lora_config", "lora"),
    "guided_decoding_guide_type": ("guided_decoding_guide_type", "guided_decoding"),
    "guided_decoding_guide": ("guided_decoding_guide", "guided_decoding"),
}
_LOGITS = ("context_logits", "generation_logits")
_PICTURES = ("image_input", "image_bytes_input", "video_bytes_input", "image_url_input")
_MIN_NAMES = ("min_length", "min_tokens")


class RequestError(ValueError):
    """A request that cannot be served: one sentence with the field, its value and the mend."""


@dataclass(frozen=True)
class Server:
    """What this server offers.

    Attributes:
        draft_tokens: draft length of a request that names none.
        max_draft_tokens: the ceiling built into the target's engine.
        max_seq_len: tokens of prompt and answer together at most, 0 if unknown.
        has_draft: whether a draft model is served.
        streams: whether answers may come in parts.
        use_draft_logits: acceptance by logits for a request that does not say.
        min_name: how this release spells the minimum length.
        passed_on: outputs that the plain path hands on from the target.
    """

    draft_tokens: int
    max_draft_tokens: int
    max_seq_len: int
    has_draft: bool
    streams: bool
    use_draft_logits: bool
    min_name: str
    passed_on: tuple[str, ...]

    @property
    def seed_name(self) -> str:
        """How this release spells the seed; both names changed in the same one."""
        return "seed" if self.min_name == "min_tokens" else "random_seed"


@dataclass(frozen=True)
class Parsed:
    """Tasks of a request, one per prompt.

    Attributes:
        fallback: why the server's default of speculating does not apply, empty if it does.
    """

    tasks: list[Task]
    fallback: str = ""


def parse(given: Mapping[str, NDArray[Any]], server: Server, tokenizer: Tokenizer) -> Parsed:
    """Tasks of one request; the first dimension of every tensor counts prompts.

    Raises:
        RequestError: a value that cannot be served.
    """
    rows = given["text_input"].shape[0]
    try:
        found = [_Row(given, rows, row, server, tokenizer) for row in range(rows)]
        tasks = [row.task() for row in found]
    except TextError as error:
        raise RequestError(str(error)) from error
    return Parsed(tasks, found[0].fallback if found else "")


class _Row:
    """One prompt of a request."""

    def __init__(
        self,
        given: Mapping[str, NDArray[Any]],
        rows: int,
        row: int,
        server: Server,
        tokenizer: Tokenizer,
    ) -> None:
        self._given = {name: array.reshape(rows, -1)[row] for name, array in given.items()}
        # A tensor keeps its shape where it is handed on whole.
        self._whole = {name: array[row : row + 1] for name, array in given.items()}
        self._server = server
        self._tokenizer = tokenizer
        self.fallback = ""

    def task(self) -> Task:
        """What this prompt asks for; raises `RequestError` with the field, value and mend."""
        self._refuse()
        stop = self._tokenizer.words(self._strings("stop_words"))
        prompt = self._prompt()
        return Task(
            prompt=tuple(prompt),
            max_tokens=self._max_tokens(len(prompt)),
            draft_tokens=(length := self._draft_tokens()),
            adaptive=length > 0 and "num_draft_tokens" not in self._given,
            min_tokens=max(self._at_least(name, 0, 0) for name in _MIN_NAMES),
            end_id=self._number("end_id", self._tokenizer.end_id),
            stop_words=tuple(tuple(word) for word in stop),
            stop_texts=tuple(word for word in self._strings("stop_words") if word),
            use_draft_logits=self._flag("use_draft_logits", self._server.use_draft_logits),
            stream=self._flag("stream"),
            exclude_input=self._flag("exclude_input_in_output"),
            log_probs=self._flag("return_log_probs"),
            statistics=self._flag("return_perf_metrics"),
            input_count=self._flag("return_num_input_tokens"),
            output_count=self._flag("return_num_output_tokens"),
            common=self._common(stop),
            seed=self._seed(),
            seed_name=self._server.seed_name,
            plain=self._plain(),
            outputs=self._outputs(),
            min_name=self._server.min_name,
        )

    def _refuse(self) -> None:
        for name in _PICTURES:
            if name in self._given:
                raise RequestError(
                    f"{name} is given, but this server reads text only: leave it out"
                )
        for name in ("beam_width", "num_return_sequences"):
            value = self._number(name, 1)
            if value != 1:
                raise RequestError(
                    f"{name} is {value}, but the engines are built for one beam: set it to 1"
                )
        if self._flag("stream") and not self._server.streams:
            raise RequestError(
                "stream is true, but this server answers once: leave stream out, "
                "or deploy with spec.serving.streaming true"
            )

    def _prompt(self) -> list[int]:
        text = text_of(self._given["text_input"][0], "text_input")
        ids = self._tokenizer.encode(text) if text else []
        if not ids:
            raise RequestError("text_input is empty: send at least one character")
        return ids

    def _max_tokens(self, prompt: int) -> int:
        asked = self._at_least("max_tokens", 1, 0)
        room = self._server.max_seq_len - prompt
        # The engines end an answer where their sequence ends; rounds beyond it would be refused.
        # A prompt without any room goes on to the engine, which says so.
        return min(asked, room) if room > 0 else asked

    def _draft_tokens(self) -> int:
        asked = self._number("num_draft_tokens", -1) if "num_draft_tokens" in self._given else None
        length = self._server.draft_tokens if asked is None else asked
        if length < 0:
            raise RequestError(f"num_draft_tokens is {length}: set it to 0 or more")
        if length and not self._server.has_draft:
            raise RequestError(
                f"num_draft_tokens is {length}, but this server has no draft model: "
                "leave it out or set it to 0"
            )
        if length > self._server.max_draft_tokens:
            raise RequestError(
                f"num_draft_tokens is {length}, but the target is built for at most "
                f"{self._server.max_draft_tokens}: lower it, or raise maxDraftTokens and rebuild"
            )
        reason, field = self._plain_only()
        if not length or not reason:
            return length
        if asked is not None:
            raise RequestError(
                f"{field} cannot be had together with num_draft_tokens {length}: "
                "set num_draft_tokens to 0 or leave the other out"
            )
        self.fallback = reason
        return 0

    def _plain_only(self) -> tuple[str, str]:
        for name in _LOGITS:
            if self._flag(f"return_{name}"):
                return name, f"return_{name}"
        for name, (_, reason) in _TARGET_ONLY.items():
            if name in self._given:
                return reason, name
        return "", ""

    def _common(self, stop: list[list[int]]) -> dict[str, NDArray[Any]]:
        common: dict[str, NDArray[Any]] = {
            engine: self._given[name].reshape(1, -1)
            for name, engine in _SAMPLING.items()
            if name in self._given
        }
        common["end_id"] = _scalar(self._number("end_id", self._tokenizer.end_id))
        common["pad_id"] = _scalar(self._number("pad_id", self._tokenizer.pad_id))
        if stop:
            common["stop_words_list"] = word_array(stop)[None]
        if bad := self._tokenizer.words(self._strings("bad_words")):
            common["bad_words_list"] = word_array(bad)[None]
        if "embedding_bias_words" in self._given or "embedding_bias_weights" in self._given:
            weights = self._given.get("embedding_bias_weights", np.empty(0))
            words = self._strings("embedding_bias_words")
            common["embedding_bias"] = self._tokenizer.bias(words, weights.tolist())[None]
        return common

    def _seed(self) -> int | None:
        if not any(name in self._given for name in _DRAWS):
            return None
        # The engines take 0 where none is given.
        return max(self._number(name, 0) for name in _SEED_NAMES)

    def _plain(self) -> dict[str, NDArray[Any]]:
        plain = {
            engine: self._whole[name]
            for name, (engine, _) in _TARGET_ONLY.items()
            if name in self._whole
        }
        for name in (
            *(f"return_{name}" for name in _LOGITS),
            "return_kv_cache_reuse_stats",
            "return_perf_metrics",
        ):
            if self._flag(name):
                plain[name] = np.array([[True]])
        return plain

    def _outputs(self) -> tuple[str, ...]:
        wanted = [name for name in _LOGITS if self._flag(f"return_{name}")]
        if self._flag("return_perf_metrics") or self._flag("return_kv_cache_reuse_stats"):
            wanted += self._server.passed_on
        return tuple(wanted)

    def _strings(self, name: str) -> list[str]:
        return [text_of(value, name) for value in self._given.get(name, ())]

    def _number(self, name: str, default: int) -> int:
        value = self._given.get(name)
        return default if value is None or not value.size else int(value[0])

    def _at_least(self, name: str, least: int, default: int) -> int:
        value = self._number(name, default)
        if value < least:
            raise RequestError(f"{name} is {value}: set it to {least} or more")
        return value

    def _flag(self, name: str, default: bool = False) -> bool:
        value = self._given.get(name)
        return default if value is None or not value.size else bool(value[0])


def _scalar(value: int) -> NDArray[np.int32]:
    return np.array([[value]], np.int32)
