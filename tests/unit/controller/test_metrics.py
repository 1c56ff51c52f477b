"""What the operator tells of its resources, as a scrape sees it."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from specdec import metrics
from specdec.api.conditions import Condition, Type
from specdec.controller.reconcile import Reconciler
from unit.controller.fakes import FakeCluster
from unit.controller.test_reconcile import DONE, IMAGES, KEY, Decided, resource

PAIR = {"model_namespace": "ns", "model_name": "pair"}
READY = (Condition(Type.READY, "True", "Serving"),)


def scraped(models: metrics.Models, name: str, labels: Mapping[str, str]) -> float | None:
    registry = CollectorRegistry()
    registry.register(models)
    return registry.get_sample_value(name, dict(labels))


def condition(models: metrics.Models, reason: str, status: str = "True") -> float | None:
    labels = {**PAIR, "type": "Ready", "status": status, "reason": reason}
    return scraped(models, "specdec_model_condition", labels)


def engine(models: metrics.Models, state: str) -> float | None:
    labels = {**PAIR, "role": "target", "state": state}
    return scraped(models, "specdec_model_engine_percent", labels)


def test_a_condition_that_changed_leaves_no_sample_behind() -> None:
    models = metrics.Models()
    models.see(KEY, [Condition(Type.READY, "False", "Building")], [])
    assert condition(models, "Building", "False") == 1
    models.see(KEY, READY, [])
    assert condition(models, "Building", "False") is None
    assert condition(models, "Serving") == 1


def test_builds_say_how_far_they_are() -> None:
    models = metrics.Models()
    for state, percent in (("Building", 40), ("Built", 100), ("Prebuilt", 100), ("Queued", 0)):
        told = {"percent": 40} if state == "Building" else {}
        models.see(KEY, READY, [{"role": "target", "state": state, **told}])
        assert engine(models, state) == percent


def test_what_is_gone_is_not_told() -> None:
    models = metrics.Models()
    models.see(KEY, READY, [])
    models.keep([KEY, ("ns", "other")])
    assert condition(models, "Serving") == 1
    models.keep([("ns", "other")])
    assert condition(models, "Serving") is None
    models.see(KEY, READY, [])
    models.forget(KEY)
    assert condition(models, "Serving") is None


async def test_a_reconcile_tells_what_it_reports_and_drops_what_it_does_not_find() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided())
    await reconciler.reconcile(KEY)
    assert condition(metrics.MODELS, DONE[-1].reason) == 1
    cluster.objects.clear()
    await reconciler.reconcile(KEY)
    assert condition(metrics.MODELS, DONE[-1].reason) is None
