"""The engine's logits equal those of an independent program, except for rounding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from specdec.images.backend.tensorrtllm.reference_engine.kv import KVBuffer
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama, Matrix, Rows
from support.oracle import LLAMA3, Tiny, logits
from support.reference_engines import build, open_engine
from unit.engine.conftest import Engine

pytestmark = pytest.mark.slow

TOKENS = np.random.default_rng(5).integers(0, 97, 50)


def run(model: Llama, tokens: npt.NDArray[np.int64], pieces: list[int]) -> npt.NDArray[np.float32]:
    """Feed a sequence in pieces and return the logits of all rows."""
    buffer = KVBuffer(model.config, 128)
    logits, start = [], 0
    for size in pieces:
        piece = tokens[start : start + size]
        logits.append(model.forward([Rows(buffer, piece, piece.size)])[0].copy())
        start += size
        buffer.length = start
    return np.concatenate(logits)


def relative(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Return the largest difference in units of the row's largest logit."""
    return float((np.abs(first - second).max(axis=1) / np.abs(second).max(axis=1)).max())


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(),
        Tiny(tied=True),
        Tiny(kv_heads=4),
        Tiny(kv_heads=1, heads=8),
        Tiny(layers=1, intermediate=70, vocab=131),
        Tiny(rope_scaling=LLAMA3),
    ],
    ids=["untied", "tied", "mha", "mqa", "odd", "llama3"],
)
def test_logits_are_those_of_the_checkpoint(tiny: Tiny, engine: Engine) -> None:
    expected = logits(tiny, TOKENS.tolist())
    model = engine(tiny)
    for pieces in ([50], [1] * 50, [7, 1, 12, 30]):
        assert relative(run(model, TOKENS, pieces), expected) < model.noise


def test_noise_bound_has_room(engine: Engine) -> None:
    """The tolerance is far above rounding errors and far below differences that decide choices."""
    model = engine(Tiny())
    whole = run(model, TOKENS, [50])
    worst = max(
        relative(run(model, TOKENS, [n] * (50 // n)), whole[: 50 // n * n]) for n in (1, 5)
    )
    assert worst < model.noise / 4
    assert model.noise < 1e-3


@pytest.mark.parametrize("single_rows", [1, 16])
def test_rows_of_several_sequences_do_not_mix(
    single_rows: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = engine(Tiny())
    monkeypatch.setattr(Matrix, "single_rows", single_rows)
    alone = [run(model, TOKENS[: 10 + n], [10 + n])[-1] for n in range(4)]
    batch = [
        Rows(KVBuffer(model.config, 128), TOKENS[: 10 + n], logit_rows=1 if n % 2 else 2)
        for n in range(4)
    ]
    together = model.forward(batch)
    assert [logits.shape[0] for logits in together] == [2, 1, 2, 1]
    for expected, actual in zip(alone, together, strict=True):
        assert relative(actual[-1:], expected[None]) < model.noise


def test_canonical_logits_are_a_function_of_the_tokens_alone(engine: Engine) -> None:
    model = engine(Tiny())
    for length in (1, 31, 32, 33, 50):
        first = model.canonical(TOKENS[:length])
        run(model, TOKENS, [3, 47])
        assert np.array_equal(first, model.canonical(TOKENS[:length]))
        # Tokens that follow in the same block must not change these logits.
        expected = logits(Tiny(), TOKENS[:length].tolist())[-1]
        assert relative(first[None], expected[None]) < model.noise


@pytest.mark.parametrize(("dtype", "margin"), [("float16", 2e-2), ("float32", 1e-4)])
def test_engine_dtype(dtype: str, margin: float, tmp_path: Path) -> None:
    checkpoint = Tiny().write(tmp_path / "hf")
    model = open_engine(build(checkpoint, tmp_path / "engine", dtype=dtype))
    assert relative(run(model, TOKENS, [50]), logits(Tiny(), TOKENS.tolist())) < margin
    config = json.loads((tmp_path / "engine" / "config.json").read_text(encoding="utf-8"))
    assert config["pretrained_config"]["dtype"] == dtype
