"""Prebuilt engines: their sources, their memory footprint, and missing engines."""

from specdec.api.checkpoint_facts import NO_FACTS
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.tensorrt.memory import footprints
from support.checkpoint_facts import stated
from support.simulated_cluster import FACTS, World, source
from unit.pipeline.tensorrt import Json, put, tensorrt

ONE: Json = {"digest": "a" * 64, "revision": "", "bytes": 1000, "facts": FACTS}


def test_missing_prebuilt_engine_is_fetched_again() -> None:
    cr = tensorrt("None")
    put(cr, "target.engine.prebuilt", source("engine"))
    put(cr, "storage.accessMode", "ReadWriteMany")
    world = World(cr)
    result: Json = {
        "models": {"target": ONE, "target-engine": {**ONE, "facts": {}}},
        "engines": [],
    }

    def ends(component: str) -> Json:
        return result if component == "fetch" else {}

    world.settle(ends)
    assert world.named("engine") == []
    put(world.cr, "serving", {"streaming": False})
    world.step()
    publish = next(n for n in world.named("publish") if "status" not in world.jobs[n])
    world.fail(publish, '{"error": {"reason": "EngineMissing", "message": "missing"}}')
    world.step()
    assert world.condition("EnginesReady")["status"] == "False"
    assert {m["role"] for m in world.cr["status"]["models"]} == {"target"}
    world.step()
    assert len(world.named("fetch")) == 1, "the missing engine was not fetched again"
    world.settle(ends)
    assert world.condition("Ready")["status"] == "True"


def test_footprint_of_a_prebuilt_engine_is_the_size_of_its_files() -> None:
    """This holds for every architecture: parameters cannot be counted without weights."""
    model = SpeculativeModel.parse(put(tensorrt("None"), "target.engine.prebuilt", source("e")))
    mixture = {k: v for k, v in FACTS.items() if k != "parameters"}
    mixture |= {"architecture": "MixtralForCausalLM", "expertsPerToken": 2}
    checkpoint = Checkpoint("target", "a" * 64, "", 9_000_000, stated(mixture))
    engine = Checkpoint("target-engine", "e" * 64, "", 40_000_000_000, NO_FACTS)

    needs = footprints(model, {"target": checkpoint, "target-engine": engine})

    assert needs["target"].parts["Weights"] == 40_000_000_000


def test_footprint_before_the_fetch_follows_the_configuration() -> None:
    """The size of a folder without weights is not the size of the model; see `specdec plan`."""
    model = SpeculativeModel.parse(put(tensorrt("None"), "target.engine.prebuilt", source("e")))
    facts = FACTS | {"intermediateSize": 512}
    engine = Checkpoint("target-engine", "e" * 64, "", 0, NO_FACTS)
    sizes = set()
    for size in (0, 100_000):
        checkpoint = Checkpoint("target", "a" * 64, "", size, stated(facts))
        needs = footprints(model, {"target": checkpoint, "target-engine": engine})
        sizes.add(needs["target"].parts["Weights"])
    assert len(sizes) == 1
