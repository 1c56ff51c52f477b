"""The KV cache reuses prefixes, evicts idle sequences, and stays within its budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specdec.images.backend.tensorrtllm.reference_engine.kv import BLOCK, KVBuffer, KVPool, Tokens
from support.engine_config import tiny_config

CONFIG = tiny_config()
TEXT = np.arange(400, dtype=np.int64)


def finish(buffer: KVBuffer, tokens: Tokens) -> None:
    """Fill a buffer as decoding does; the keys and values of a token are its id."""
    fresh = tokens[buffer.length :]
    buffer.keys[..., buffer.length : tokens.size] = fresh
    buffer.values[:, :, buffer.length : tokens.size] = fresh[:, None]
    buffer.tokens[buffer.length : tokens.size] = fresh
    buffer.length = tokens.size


def test_a_continuation_takes_the_buffer_over() -> None:
    pool = KVPool(CONFIG, 4 * BLOCK, reuse=True)
    first = pool.reserve(TEXT[:50], 60, 49)
    assert first is not None
    assert first.reused == 0
    finish(first.buffer, TEXT[:58])
    pool.release(first.buffer, keep=True)
    # In the next round, the prompt contains four of the eight draft tokens.
    second = pool.reserve(TEXT[:54], 70, 53)
    assert second is not None
    assert (second.buffer, second.reused) == (first.buffer, 53)
    assert pool.held == BLOCK


def test_another_branch_copies_the_prefix() -> None:
    pool = KVPool(CONFIG, 8 * BLOCK, reuse=True)
    first = pool.reserve(TEXT[:20], 320, 19)
    assert first is not None
    finish(first.buffer, TEXT[:300])
    pool.release(first.buffer, keep=True)
    other = np.concatenate([TEXT[:40], TEXT[:5]])
    second = pool.reserve(other, 60, other.size - 1)
    assert second is not None
    assert second.buffer is not first.buffer
    assert second.reused == 40
    assert np.array_equal(second.buffer.keys[0, 0, 0, :40], TEXT[:40])
    # The buffer of the longer sequence is still in the pool.
    third = pool.reserve(TEXT[:300], 310, 299)
    assert third is not None
    assert third.reused == 299


def test_without_reuse_no_prefix_matches() -> None:
    pool = KVPool(CONFIG, 4 * BLOCK, reuse=False)
    first = pool.reserve(TEXT[:50], 60, 49)
    assert first is not None
    finish(first.buffer, TEXT[:58])
    pool.release(first.buffer, keep=True)
    assert pool.held == 0
    second = pool.reserve(TEXT[:50], 60, 49)
    assert second is not None
    assert second.reused == 0


def test_a_full_pool_waits_for_active_sequences_but_evicts_the_oldest_idle() -> None:
    pool = KVPool(CONFIG, 2 * BLOCK, reuse=True)
    texts = [TEXT[start : start + 50] for start in (0, 100, 200)]
    one, two = (pool.reserve(text, 60, 49) for text in texts[:2])
    assert one is not None
    assert two is not None
    assert pool.reserve(texts[2], 60, 49) is None
    for reservation, text in ((one, texts[0]), (two, texts[1])):
        finish(reservation.buffer, text)
        pool.release(reservation.buffer, keep=True)
    three = pool.reserve(texts[2], 60, 49)
    assert three is not None
    kept = pool.reserve(texts[1], 60, 49)
    assert kept is not None
    assert kept.reused == 49


def test_a_prefix_too_large_to_keep_twice_moves() -> None:
    """If a copied prefix does not fit beside its original, the pool evicts the original."""
    pool = KVPool(CONFIG, 3 * BLOCK, reuse=True)
    first = pool.reserve(TEXT[:300], 310, 299)
    assert first is not None
    finish(first.buffer, TEXT[:300])
    pool.release(first.buffer, keep=True)
    other = np.concatenate([TEXT[:40], TEXT[:5]])
    second = pool.reserve(other, 60, other.size - 1)
    assert second is not None
    assert second.reused == 40
    assert np.array_equal(second.buffer.keys[0, 0, 0, :40], TEXT[:40])
    assert pool.held == BLOCK


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=1, max_size=12),
            st.integers(1, 200),
            st.booleans(),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_budget_and_contents_hold_whatever_happens(
    steps: list[tuple[list[int], int, bool, bool]],
) -> None:
    pool = KVPool(CONFIG, 5 * BLOCK, reuse=True)
    flying: list[tuple[KVBuffer, Tokens]] = []
    for head, size, end, keep in steps:
        tokens = np.concatenate([np.repeat(head, 9), np.arange(size)]).astype(np.int64)
        reservation = pool.reserve(tokens, tokens.size + 5, tokens.size - 1)
        assert pool.held <= pool.budget
        if reservation is not None:
            held = reservation.buffer.keys[0, 0, 0, : reservation.reused]
            assert np.array_equal(held, tokens[: reservation.reused])
            assert reservation.buffer.capacity >= tokens.size + 5
            assert all(reservation.buffer is not other for other, _ in flying)
            finish(reservation.buffer, tokens)
            flying.append((reservation.buffer, tokens))
        for buffer, contents in flying:
            assert np.array_equal(buffer.keys[0, 0, 0, : contents.size], contents)
        if end and flying:
            buffer, _ = flying.pop(0)
            pool.release(buffer, keep)
    for buffer, _ in flying:
        pool.release(buffer, keep=False)
    assert 0 <= pool.held <= pool.budget


def test_kept_rows_move_behind_the_prefix() -> None:
    buffer = KVBuffer(CONFIG, 16)
    finish(buffer, np.arange(16))
    buffer.move([4, 9, 10], 4)
    assert buffer.keys[0, 0, 0, :8].tolist() == [0, 1, 2, 3, 4, 9, 10, 7]
    assert buffer.values[0, 0, :8, 1].tolist() == [0, 1, 2, 3, 4, 9, 10, 7]
