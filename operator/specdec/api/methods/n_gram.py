"""`spec.speculation.nGram`: draft tokens are what followed the same n-gram before."""

from typing_extensions import override

from specdec.api.methods.block import Block


class NGram(Block):
    """N-grams of prompt and answer.

    `maxMatchingSize` is the length of the longest n-gram that is searched, in tokens. `keepAll`
    keeps every continuation of an n-gram, and `useOldest` proposes the oldest of them. With
    `publicPool` requests share their n-grams.
    """

    max_matching_size: int = 4
    keep_all: bool = True
    use_oldest: bool = True
    public_pool: bool = False

    @property
    @override
    def shares_texts(self) -> str:
        """The pool of n-grams."""
        return "publicPool" if self.public_pool else ""
