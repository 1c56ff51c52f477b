"""Metrics about resources in the response to a scrape."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from specdec.api.conditions import Condition, Type
from specdec.api.reasons import EngineReason, ReadyReason
from specdec.cluster import metrics
from specdec.controller.reconcile import Reconciler
from support.fake_cluster import FakeCluster
from unit.controller.decisions import DONE, IMAGES, KEY, Decided, resource

PAIR = {"model_namespace": "ns", "model_name": "pair"}
READY = (Condition(Type.READY, "True", ReadyReason.SERVING),)


def sample(models: metrics.ModelCollector, name: str, labels: Mapping[str, str]) -> float | None:
    registry = CollectorRegistry()
    registry.register(models)
    return registry.get_sample_value(name, dict(labels))


def condition(models: metrics.ModelCollector, reason: str, status: str = "True") -> float | None:
    labels = {**PAIR, "type": "Ready", "status": status, "reason": reason}
    return sample(models, "specdec_model_condition", labels)


def engine(models: metrics.ModelCollector, state: str) -> float | None:
    labels = {**PAIR, "role": "target", "state": state}
    return sample(models, "specdec_model_engine_percent", labels)


def test_changed_condition_leaves_no_old_sample() -> None:
    models = metrics.ModelCollector()
    models.set(KEY, [Condition(Type.READY, "False", EngineReason.BUILDING)], {})
    assert condition(models, "Building", "False") == 1
    models.set(KEY, READY, {})
    assert condition(models, "Building", "False") is None
    assert condition(models, "Serving") == 1


def test_builds_have_a_percentage() -> None:
    models = metrics.ModelCollector()
    for state, percent in (("Building", 40), ("Built", 100), ("Prebuilt", 100), ("Queued", 0)):
        progress = {"percent": 40} if state == "Building" else {}
        engines = [{"role": "target", "state": state, **progress}]
        models.set(KEY, READY, {"engines": engines})
        assert engine(models, state) == percent


def test_measured_speed_is_a_multiple() -> None:
    models = metrics.ModelCollector()
    models.set(KEY, READY, {"speculation": {"acceptancePercent": 53}})
    assert sample(models, "specdec_model_speed_ratio", PAIR) is None
    models.set(KEY, READY, {"speculation": {"speedupPercent": 152}})
    assert sample(models, "specdec_model_speed_ratio", PAIR) == 1.52


def test_deleted_resource_has_no_samples() -> None:
    models = metrics.ModelCollector()
    models.set(KEY, READY, {})
    models.retain([KEY, ("ns", "other")])
    assert condition(models, "Serving") == 1
    models.retain([("ns", "other")])
    assert condition(models, "Serving") is None
    models.set(KEY, READY, {})
    models.forget(KEY)
    assert condition(models, "Serving") is None


async def test_reconcile_exports_conditions_and_drops_missing_resources() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided())
    await reconciler.reconcile(KEY)
    assert condition(metrics.MODELS, DONE[-1].reason) == 1
    cluster.objects.clear()
    await reconciler.reconcile(KEY)
    assert condition(metrics.MODELS, DONE[-1].reason) is None
