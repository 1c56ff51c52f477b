"""The rank plan for every split, topology and placement on up to eight GPUs."""

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from specdec.api.methods.draft_target import Placement, Topology
from specdec.triton.layout import (
    Launch,
    Layout,
    Mode,
    RankError,
    RankPlan,
    Split,
)
from specdec.triton.rank_plan import plan

GPUS = 8
SHAPES = [(t, p) for t in range(1, GPUS + 1) for p in range(1, GPUS + 1) if t * p <= GPUS]


def given(tensor: int, pipeline: int) -> Iterator[Split]:
    """Yield splits with derived GPU ordinals, the first, the last, and the last in reverse."""
    ranks = tensor * pipeline
    last = tuple(range(GPUS - ranks, GPUS))
    for ids in {(), tuple(range(ranks)), last, last[::-1]}:
        yield Split(tensor, pipeline, ids)


def layouts() -> Iterator[Layout]:
    """Yield some thirty thousand possible and impossible layouts."""
    splits = [split for shape in SHAPES for split in given(*shape)]
    for target, topology, fast in product(splits, Topology, (False, True)):
        for placement in Placement:
            yield Layout(target, None, topology, placement, fast)
            for draft in splits:
                yield Layout(target, draft, topology, placement, fast)


def possible(layout: Layout) -> bool:
    """Return whether a layout is possible, by an independent form of the rules."""
    two = layout.topology is Topology.TWO_SERVERS
    if layout.draft is None:
        return not two and not layout.fast_logits
    if two:
        return layout.placement is Placement.DEDICATED and not layout.fast_logits
    target, draft = layout.target.device_ids, layout.draft.device_ids
    common = len({*target} & {*draft})
    if layout.placement is Placement.DEDICATED:
        return common == 0
    return not target or not draft or common == min(len(target), len(draft))


def attempt(layout: Layout) -> RankPlan | str:
    """Return the plan, or the reason why the layout is refused."""
    try:
        return plan(layout)
    except RankError as error:
        return str(error)


@pytest.mark.slow
def test_every_layout_is_planned_soundly_or_refused_with_a_reason() -> None:
    modes: dict[Mode, int] = dict.fromkeys(Mode, 0)
    refused = 0
    for layout in layouts():
        planned = attempt(layout)
        if isinstance(planned, str):
            assert not possible(layout), (layout, planned)
            assert " is " in planned, layout
            assert "set " in planned or "name " in planned, layout
            refused += 1
            continue
        assert possible(layout), layout
        _check_devices(layout, planned)
        _check_ranks(layout, planned)
        for server in planned.servers:
            modes[server.launch.mode] += 1
    assert refused > 1000
    assert min(modes.values()) > 20, modes


def _check_devices(layout: Layout, planned: RankPlan) -> None:
    assert list(planned.devices) == list(layout.splits)
    for role, split in layout.splits.items():
        ids = planned.devices[role]
        assert len(ids) == split.tensor * split.pipeline == len(set(ids))
        assert ids == split.device_ids or not split.device_ids
    for server in planned.servers:
        taken = {i for ids in server.gpu_device_ids.values() for i in ids}
        assert taken <= set(range(server.gpus))
        assert server.gpus - 1 in taken
        if not any(split.device_ids for split in layout.splits.values()):
            assert taken == set(range(server.gpus)), "a GPU of the pod is not used"
    if layout.draft is not None and layout.topology is Topology.SINGLE_SERVER:
        target, draft = (set(planned.devices[role]) for role in ("target", "draft"))
        if layout.placement is Placement.DEDICATED:
            assert not target & draft
        else:
            assert target <= draft or draft <= target


def _check_ranks(layout: Layout, planned: RankPlan) -> None:
    assert len(planned.servers) == (2 if layout.topology is Topology.TWO_SERVERS else 1)
    for server in planned.servers:
        devices, participants = server.gpu_device_ids, server.participant_ids
        mode, world = server.launch.mode, server.launch.world_size
        counts = {role: len(ids) for role, ids in devices.items()}
        if mode is Mode.ORCHESTRATOR:
            assert {role: len(ids) for role, ids in participants.items()} == counts
            assert sorted(i for ids in participants.values() for i in ids) == [*range(1, world)]
            for ids in participants.values():
                assert ids == tuple(range(ids[0], ids[-1] + 1))
            assert world == 1 + sum(counts.values())
            assert set(devices) == {"target", "draft"}
            continue
        assert not participants
        assert not layout.fast_logits
        if mode is Mode.LEADER:
            assert list(counts.values()) == [world]
            assert world > 1
        else:
            assert world == 1
            assert len(set(devices.values())) == 1, "two GPU sets in one process"


def test_every_choice_of_ordinals_on_four_gpus() -> None:
    choices = [(), *((i,) for i in range(4)), *permutations(range(4), 2)]
    for target, draft, placement in product(choices, choices, Placement):
        layout = Layout(
            Split(len(target) or 1, 1, target),
            Split(1, len(draft) or 1, draft),
            placement=placement,
        )
        if not possible(layout):
            with pytest.raises(RankError, match=r"gpu\.deviceIds is"):
                plan(layout)
            continue
        _check_devices(layout, plan(layout))
        _check_ranks(layout, plan(layout))


@pytest.mark.parametrize(
    ("layout", "devices", "participants", "launch"),
    [
        (Layout(Split()), {"target": (0,)}, {}, Launch()),
        (Layout(Split(4)), {"target": (0, 1, 2, 3)}, {}, Launch(Mode.LEADER, 4)),
        (Layout(Split(), Split()), {"target": (0,), "draft": (0,)}, {}, Launch()),
        (
            Layout(Split(), Split(), fast_logits=True),
            {"target": (0,), "draft": (0,)},
            {"draft": (1,), "target": (2,)},
            Launch(Mode.ORCHESTRATOR, 3),
        ),
        (
            Layout(Split(4), Split(), placement=Placement.DEDICATED),
            {"target": (0, 1, 2, 3), "draft": (4,)},
            {"draft": (1,), "target": (2, 3, 4, 5)},
            Launch(Mode.ORCHESTRATOR, 6),
        ),
        (
            Layout(Split(4), Split(2)),
            {"target": (0, 1, 2, 3), "draft": (0, 1)},
            {"draft": (1, 2), "target": (3, 4, 5, 6)},
            Launch(Mode.ORCHESTRATOR, 7),
        ),
        (
            Layout(Split(2), Split(1, 1, (1,)), placement=Placement.DEDICATED),
            {"target": (0, 2), "draft": (1,)},
            {"draft": (1,), "target": (2, 3)},
            Launch(Mode.ORCHESTRATOR, 4),
        ),
    ],
    ids=["one", "tp4", "pair", "fast", "dedicated", "shared", "around"],
)
def test_published_shapes(
    layout: Layout,
    devices: dict[str, tuple[int, ...]],
    participants: dict[str, tuple[int, ...]],
    launch: Launch,
) -> None:
    (server,) = plan(layout).servers
    assert server.gpu_device_ids == devices
    assert server.participant_ids == participants
    assert server.launch == launch


def test_two_servers_have_pods_of_their_own() -> None:
    layout = Layout(Split(4), Split(), Topology.TWO_SERVERS, Placement.DEDICATED)
    target, draft = plan(layout).servers
    assert (target.gpus, target.launch) == (4, Launch(Mode.LEADER, 4))
    assert (draft.gpus, draft.launch) == (1, Launch())
    assert draft.gpu_device_ids == {"draft": (0,)}


def test_one_process_takes_the_gpus_it_is_given_and_no_other() -> None:
    (server,) = plan(Layout(Split(), Split(), one_process=True)).servers
    assert (server.gpus, server.launch) == (0, Launch())
    named = Layout(Split(1, 1, (2,)), Split(1, 1, (0,)), one_process=True)
    (server,) = plan(named).servers
    assert (server.gpus, server.launch) == (3, Launch())
    assert server.gpu_device_ids == {"target": (2,), "draft": (0,)}


@pytest.mark.parametrize(
    ("layout", "part"),
    [
        (Layout(Split(0)), "parallelism.tensor of the target is 0"),
        (Layout(Split(), Split(1, -1)), "parallelism.pipeline of the draft is -1"),
        (Layout(Split(2, 1, (0,))), "is [0]: name 2 different ordinals"),
        (Layout(Split(2, 1, (1, 1))), "is [1, 1]: name 2 different ordinals"),
        (Layout(Split(1, 1, (-1,))), "ordinals from 0"),
        (Layout(Split(2), one_process=True), "parallelism of the target is 2 x 1"),
        (
            Layout(Split(), Split(), Topology.TWO_SERVERS, one_process=True),
            "topology is TwoServers",
        ),
        (Layout(Split(), Split(), fast_logits=True, one_process=True), "fastLogits is true"),
        (Layout(Split(), Split(), Topology.TWO_SERVERS), "draftTarget.placement is Shared"),
    ],
)
def test_refusals_name_the_field_and_the_value(layout: Layout, part: str) -> None:
    with pytest.raises(RankError) as caught:
        plan(layout)
    assert part in str(caught.value)
