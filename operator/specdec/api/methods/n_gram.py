"""`spec.speculation.nGram`: drafts are what followed an earlier occurrence of the last tokens."""

from typing_extensions import override

from specdec.api.methods.block import Block


class NGram(Block):
    """N-grams of prompt and answer.

    On backends with engines the BLS drafts: it searches the longest match of at least `minMatch`
    tokens. With `memoryMegabytes`, it also searches the earlier texts of the scope that a request
    names.
    The other fields are of backend PyTorch. `maxMatchingSize` is the length of the longest n-gram
    that is searched, in tokens. `keepAll` keeps every continuation of an n-gram, and `useOldest`
    proposes the oldest of them. With `publicPool` requests share their n-grams.
    """

    min_match: int = 2
    memory_megabytes: int | None = None
    max_matching_size: int = 4
    keep_all: bool = True
    use_oldest: bool = True
    public_pool: bool = False

    @property
    @override
    def drafts_from_lookups(self) -> bool:
        """Always true: lookups are the method's only source of drafts."""
        return True

    @property
    @override
    def in_engine(self) -> bool:
        """False: the BLS drafts."""
        return False

    @property
    @override
    def shared_texts_field(self) -> str:
        """The field of the n-grams."""
        return "publicPool" if self.public_pool else ""
