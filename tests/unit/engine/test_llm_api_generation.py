"""Verification rounds of the LLM API's stand-in."""

import pytest

from specdec.images.backend.tensorrtllm.llm_api_engine.generation import Generator
from specdec.images.backend.tensorrtllm.llm_api_engine.settings import Speculation
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling
from support.oracle import Tiny
from unit.engine.conftest import Engine, Start


@pytest.mark.parametrize(("threshold", "stopped"), [(0.0, False), (2.5, True)])
def test_low_acceptance_stops_drafting_after_a_caller_that_leaves_at_the_last_token(
    engine: Engine, start: Start, threshold: float, stopped: bool
) -> None:
    speculation = Speculation("NGram", length=2, window=1, threshold=threshold)
    generator = Generator(start(engine(Tiny())), None, speculation)
    for progress in generator.run([5, 6, 7], 4, Sampling()):
        if len(progress.tokens) == 4:
            break
    assert generator.stopped is stopped


@pytest.mark.parametrize(("threshold", "stopped"), [(0.0, False), (1.1, True)])
def test_a_low_acceptance_rate_of_steps_stops_drafting(
    engine: Engine, start: Start, threshold: float, stopped: bool
) -> None:
    speculation = Speculation("NGram", length=2, rate_window=1, rate_threshold=threshold)
    generator = Generator(start(engine(Tiny())), None, speculation)
    for _ in generator.run([5, 6, 5, 6, 5, 6], 6, Sampling()):
        pass
    assert generator.stopped is stopped
