"""`spec.speculation.lookahead`: the target drafts from n-grams that it generated itself."""

from specdec.api.methods.block import Block


class Lookahead(Block):
    """Window W, n-gram size N and verification set G of lookahead decoding."""

    window_size: int = 7
    ngram_size: int = 7
    verification_set_size: int = 7
