"""The limits that follow from others."""

from specdec.images.openai.limits import Limits

MIB = 1 << 20


def test_limits_of_bytes_follow_the_largest_body() -> None:
    largest = Limits(body_bytes=256 * MIB)
    assert (largest.arriving_bytes, largest.held_bytes) == (512 * MIB, 1024 * MIB)
