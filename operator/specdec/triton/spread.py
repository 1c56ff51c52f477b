"""Why an engine cannot be spread over pods on several nodes, in one sentence."""

from specdec.api.methods.draft_target import Placement, Topology
from specdec.triton.layout import Layout, Split

# The number of GPUs of a node that TensorRT-LLM assumes by default. Without ordinals in the
# configuration, rank r of a model uses GPU r modulo this number of its own node.
GPUS_PER_NODE = 8


def refusal(layout: Layout) -> str | None:
    """Why a group of pods is impossible, with the field, its value and the fix; None if valid."""
    nodes = f"serving.nodesPerReplica is {layout.nodes}"
    if layout.nodes < 1:
        return f"{nodes}: set it to 1 or more"
    if layout.one_process:
        return f"{nodes}, and this backend runs in one process: set it to 1"
    if layout.topology is Topology.TWO_SERVERS:
        return (
            f"{nodes}, and draftTarget.topology is TwoServers: set topology to SingleServer, or "
            "nodesPerReplica to 1"
        )
    for role, split in layout.splits.items():
        if split.device_ids:
            return (
                f"{nodes}, and gpu.deviceIds of the {role} is {list(split.device_ids)}: leave it "
                "out, every pod of a group numbers its own GPUs"
            )
    return _ranks(layout, nodes) or _draft(layout, nodes)


def _ranks(layout: Layout, nodes: str) -> str | None:
    target = layout.target
    size = f"parallelism of the target is {target.tensor} x {target.pipeline}"
    if target.ranks != GPUS_PER_NODE * layout.nodes:
        return (
            f"{nodes}, and {size}: set tensor x pipeline to {GPUS_PER_NODE * layout.nodes}, "
            f"{GPUS_PER_NODE} ranks for each node"
        )
    for node in range(layout.nodes):
        if len(_gpus(target, node)) != GPUS_PER_NODE:
            return (
                f"{nodes}, and {size}, which gives two ranks the same GPU: set tensor to a "
                f"divisor or a multiple of {GPUS_PER_NODE}"
            )
    return None


def _gpus(target: Split, node: int) -> set[int]:
    """The GPUs that the ranks of one node take.

    The executor reverses the order of pipeline stages, so that the first rank of the world leads
    the last stage. It numbers GPUs in the reversed order.
    """
    first = node * GPUS_PER_NODE
    stages = [divmod(rank, target.tensor) for rank in range(first, first + GPUS_PER_NODE)]
    order = ((target.pipeline - 1 - stage) * target.tensor + shard for stage, shard in stages)
    return {rank % GPUS_PER_NODE for rank in order}


def _draft(layout: Layout, nodes: str) -> str | None:
    draft = layout.draft
    if draft is None:
        return (
            f"{nodes}, and fastLogits is true without a draft: set it to false"
            if layout.fast_logits
            else None
        )
    if layout.placement is Placement.DEDICATED:
        return (
            f"{nodes}, and draftTarget.placement is Dedicated: set it to Shared, the target takes "
            "every GPU of its nodes"
        )
    if draft.ranks > GPUS_PER_NODE:
        return (
            f"{nodes}, and parallelism of the draft is {draft.tensor} x {draft.pipeline}: set it "
            f"to at most {GPUS_PER_NODE}, a draft runs on the first node alone"
        )
    return None
