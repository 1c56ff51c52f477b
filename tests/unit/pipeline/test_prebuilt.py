"""Prebuilt engines: what is fetched beside them, how they are weighed, and when they are gone."""

from golden.world import FACTS, World, source
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.tensorrt.memory import footprints
from unit.pipeline.tensorrt import Json, put, tensorrt

ONE: Json = {"digest": "a" * 64, "revision": "", "bytes": 1000, "facts": FACTS}


def test_a_prebuilt_engine_gone_from_the_volume_is_fetched_again() -> None:
    cr = tensorrt("None")
    put(cr, "target.engine.prebuilt", source("engine"))
    put(cr, "storage.accessMode", "ReadWriteMany")
    world = World(cr)
    told: Json = {"models": {"target": ONE, "target-engine": {**ONE, "facts": {}}}, "engines": []}

    def ends(component: str) -> Json:
        return told if component == "fetch" else {}

    world.settle(ends)
    assert world.named("engine") == []
    put(world.cr, "serving", {"streaming": False})
    world.step()
    publish = next(n for n in world.named("publish") if "status" not in world.jobs[n])
    world.fail(publish, '{"error": {"reason": "EngineMissing", "message": "gone"}}')
    world.step()
    assert world.condition("EnginesReady")["status"] == "False"
    assert {m["role"] for m in world.cr["status"]["models"]} == {"target"}
    world.step()
    assert len(world.named("fetch")) == 1, "what is gone was not fetched again"
    world.settle(ends)
    assert world.condition("Ready")["status"] == "True"


def test_a_prebuilt_engine_is_weighed_by_its_files_and_not_by_a_tokenizer() -> None:
    """Whatever architecture: without weights there is nothing to count parameters from."""
    model = SpeculativeModel.parse(put(tensorrt("None"), "target.engine.prebuilt", source("e")))
    mixture = {k: v for k, v in FACTS.items() if k != "parameters"}
    mixture |= {"architecture": "MixtralForCausalLM", "expertsPerToken": 2}
    checkpoint = Checkpoint("target", "a" * 64, "", 9_000_000, mixture)
    engine = Checkpoint("target-engine", "e" * 64, "", 40_000_000_000, {})

    found = footprints(model, {"target": checkpoint, "target-engine": engine})

    assert found["target"].parts["Weights"] == 40_000_000_000


def test_before_the_engine_is_there_the_configuration_is_asked() -> None:
    """As `specdec plan` does: a folder without weights is no model of a few megabytes."""
    model = SpeculativeModel.parse(put(tensorrt("None"), "target.engine.prebuilt", source("e")))
    facts = FACTS | {"intermediateSize": 512}
    engine = Checkpoint("target-engine", "e" * 64, "", 0, {})
    sizes = set()
    for size in (0, 100_000):
        checkpoint = Checkpoint("target", "a" * 64, "", size, facts)
        found = footprints(model, {"target": checkpoint, "target-engine": engine})
        sizes.add(found["target"].parts["Weights"])
    assert len(sizes) == 1
