"""Parts of the blocks whose methods draft inside TensorRT-LLM's LLM API (backend PyTorch)."""

from specdec.api.value import Value


class DraftLengthStep(Value):
    """From `batchSize` requests on, a step drafts `draftTokens`; with 0 it drafts nothing."""

    batch_size: int
    draft_tokens: int


class DraftLengthByLoad(Value):
    """How the draft length follows the load; exactly one of the fields is set.

    `maxConcurrency` is the number of requests up to which the server drafts. `schedule` has the
    draft length for each number of requests; its first step has the full length.
    """

    max_concurrency: int | None = None
    schedule: tuple[DraftLengthStep, ...] = ()


class AcceptanceThreshold(Value):
    """When the server stops drafting for good.

    It stops if the mean acceptance length of the last `window` requests falls below
    `lengthPercent`, in percent of a token: 150 means 1.5 tokens a step. Without any accepted
    draft token a step gives one token, so values above 100 are useful.
    """

    window: int
    length_percent: int


class AcceptanceRateThreshold(Value):
    """When the server stops drafting for good, in releases that count steps.

    It stops if less than `ratePercent` of the draft tokens were accepted, averaged over the last
    `windowSteps` steps.
    """

    window_steps: int
    rate_percent: int


class DynamicTree(Value):
    """A tree of draft tokens that grows where the draft is confident.

    `topK` is the number of children of a node, `maxTotalTokens` the number of nodes.
    """

    top_k: int
    max_total_tokens: int


class SuffixMatching(Value):
    """A suffix automaton beside trained heads: matches of `threshold` tokens replace their drafts.

    With `globalPool` requests share their texts.
    """

    threshold: int = 4
    global_pool: bool = False
