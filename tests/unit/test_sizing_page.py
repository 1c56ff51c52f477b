"""The page of sizes equals the results of the memory plan for public checkpoints."""

import pytest

from specdec.api.gpus import products
from specdec.api.matrix import support
from unit import sizing_reference as page


@pytest.mark.slow
def test_page_is_up_to_date() -> None:
    again = "run python tests/unit/sizing_reference.py"
    assert page.PAGE.read_text("utf-8") == page.render(), again


@pytest.mark.parametrize("name", page.checkpoints())
def test_configurations_have_the_published_number_of_parameters(name: str) -> None:
    published = page.checkpoints()[name]["parameters"]
    # The memory plan does not count norms and biases.
    assert published * 0.999 < page.sizes(name).parameters <= published


def test_pairs_are_public_checkpoints_that_their_backend_serves() -> None:
    assert len(set(page.PAIRS)) == 12
    named = {name for pair in page.PAIRS for name in (pair.target, pair.draft)}
    assert named == set(page.checkpoints())
    for pair in page.PAIRS:
        for name in (pair.target, pair.draft):
            (architecture,) = page.checkpoints()[name]["config"]["architectures"]
            assert architecture in support(pair.backend).architectures


def test_every_column_is_a_known_product() -> None:
    assert set(page.COLUMNS) <= set(products())


@pytest.mark.slow
@pytest.mark.parametrize("pair", page.PAIRS, ids=lambda pair: f"{pair.target}+{pair.draft}")
def test_fewest_gpus_are_enough_and_fewer_are_not(pair: page.Pair) -> None:
    for product in page.COLUMNS:
        fewest = page.fewest(pair, product, "None")
        tensor = 16 if fewest == "-" else int(fewest.rstrip("*"))
        if tensor <= page.TENSOR[-1]:
            assert page.planned(pair, product, tensor, "None").refusal == ""
        if tensor > 1:
            assert "Insufficient" in page.planned(pair, product, tensor // 2, "None").refusal


def test_plan_and_page_have_the_same_weights() -> None:
    """The weights in a plan for one GPU equal those in the table of models."""
    pair = page.PAIRS[0]
    (device,) = page.planned(pair, "NVIDIA-B200", 1, "None").status["plan"]["memory"]["devices"]
    for role, name in (("target", pair.target), ("draft", pair.draft)):
        mib = page.alone(name).parts["Weights"] / 2**20
        assert device["parts"][f"{role}Weights"] == pytest.approx(mib, abs=1)


@pytest.mark.slow
def test_only_qwen_pairs_of_two_vocabulary_sizes_need_the_warning() -> None:
    refused = {
        pair
        for pair in page.PAIRS
        if "VocabSizeMismatch"
        # Four ranks can share the heads of every pair.
        in page.planned(pair, "NVIDIA-B200", 4, "None", vocabulary="Enforce").refusal
    }
    drafts = {"Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"}
    assert refused == {pair for pair in page.PAIRS if pair.draft in drafts}
