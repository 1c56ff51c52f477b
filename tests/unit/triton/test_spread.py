"""A target over several nodes: every layout has a valid plan, or an error with a fix."""

from itertools import product

import pytest

from specdec.api.methods.draft_target import Placement, Topology
from specdec.triton import launch
from specdec.triton.layout import Layout, Mode, RankError, RankPlan, Server, Split
from specdec.triton.rank_plan import plan

SHAPES = [(t, p) for t in range(1, 33) for p in range(1, 33) if t * p <= 32]


def gpus(layout: Layout, server: Server) -> list[list[int]]:
    """Return the GPUs of the target ranks of each pod, by another form of the executor's rule.

    The last pipeline stage leads: the session counts stages from the last to the first.
    """
    target = layout.target
    world = [(stage, at) for stage in range(target.pipeline) for at in range(target.tensor)]
    session = sorted(world, key=lambda rank: (-rank[0], rank[1]))
    device = {rank: number % 8 for number, rank in enumerate(session)}
    each = server.gpus
    ranks = [device[rank] for rank in world]
    return [ranks[first : first + each] for first in range(0, len(ranks), each)]


def attempt(layout: Layout) -> RankPlan | str:
    """Return the plan, or the reason why the layout is refused."""
    try:
        return plan(layout)
    except RankError as error:
        return str(error)


def test_every_shape_on_two_to_four_nodes_is_planned_soundly_or_refused() -> None:
    planned = refused = 0
    drafts = (None, Split(), Split(2), Split(2, 4), Split(3, 3))
    for shape, draft, placement, nodes in product(SHAPES, drafts, Placement, (2, 3, 4)):
        layout = Layout(Split(*shape), draft, placement=placement, nodes=nodes)
        attempted = attempt(layout)
        if isinstance(attempted, str):
            assert f"serving.nodesPerReplica is {nodes}" in attempted
            assert "set " in attempted
            refused += 1
            continue
        (server,) = attempted.servers
        planned += 1
        assert all(sorted(pod) == [*range(8)] for pod in gpus(layout, server)), layout
        _check(layout, server)
    assert planned > 30
    assert refused > 1000


def _check(layout: Layout, server: Server) -> None:
    slots, world = server.launch.slots, server.launch.world_size
    assert server.gpus == 8
    assert len(slots) == layout.nodes
    assert sum(slots) == world
    assert set(slots[1:]) == {8}
    assert server.named_ids("target") == ()
    assert server.gpu_device_ids["target"] == tuple(range(8))
    if layout.draft is None:
        assert server.launch.mode is Mode.LEADER
        assert world == layout.target.ranks
        return
    assert server.launch.mode is Mode.ORCHESTRATOR
    assert server.named_ids("draft") == tuple(range(layout.draft.ranks))
    ids = [*server.participant_ids["draft"], *server.participant_ids["target"]]
    assert ids == [*range(1, world)]
    assert max(server.participant_ids["draft"]) < slots[0], "a draft rank left the leader's pod"
    assert slots[0] == 1 + layout.draft.ranks + 8


@pytest.mark.parametrize(
    ("layout", "part"),
    [
        (Layout(Split(4), nodes=0), "nodesPerReplica is 0: set it to 1"),
        (Layout(Split(), nodes=2, one_process=True), "one process: set it to 1"),
        (Layout(Split(9), nodes=2), "tensor x pipeline to 16"),
        (Layout(Split(4, 2), nodes=2), "tensor x pipeline to 16"),
        (Layout(Split(3, 8), nodes=3), "two ranks the same GPU"),
        (Layout(Split(8, 2, tuple(range(16))), nodes=2), "gpu.deviceIds of the target"),
        (Layout(Split(8, 2), Split(1, 1, (0,)), nodes=2), "gpu.deviceIds of the draft"),
        (
            Layout(Split(8, 2), Split(), Topology.TWO_SERVERS, Placement.DEDICATED, nodes=2),
            "topology is TwoServers",
        ),
        (Layout(Split(8, 2), Split(), placement=Placement.DEDICATED, nodes=2), "to Shared"),
        (Layout(Split(8, 2), Split(9), nodes=2), "at most 8"),
        (Layout(Split(8, 2), fast_logits=True, nodes=2), "without a draft"),
    ],
)
def test_an_impossible_group_is_refused_in_one_sentence(layout: Layout, part: str) -> None:
    with pytest.raises(RankError) as caught:
        plan(layout)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("draft", [None, Split(2)])
def test_mpirun_gets_a_host_for_every_rank(draft: Split | None) -> None:
    (server,) = plan(Layout(Split(8, 2), draft, nodes=2)).servers
    argv = launch.command(server.launch, "/models/repositories/abc")
    hosts = [argv[at + 1] for at, word in enumerate(argv) if word == "--host"]
    first = server.launch.slots[0]
    assert hosts == ["localhost"] * first + ["worker-1"] * 8
