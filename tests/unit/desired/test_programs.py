"""Programs of server pods: the path in a pod has a file in the mounted ConfigMap."""

import re
from typing import Any
from unittest.mock import patch

import yaml

from specdec.api.model import SpeculativeModel
from specdec.desired import group, programs, serving
from specdec.desired.pod import Volume
from specdec.triton import launch
from specdec.triton.layout import Launch, Mode
from support.simulated_cluster import resource

VOLUME = Volume("models", "abc", single_node=False)
# A Deployment of a few kilobytes stays readable in `kubectl get -o yaml`.
LIMIT_BYTES = 8192
PATH = re.compile(rf"{launch.PROGRAMS}/([a-z_]+\.py)$")


def model(**spec: Any) -> SpeculativeModel:
    cr = resource()
    cr["spec"]["serving"] = spec
    return SpeculativeModel.parse(cr)


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def with_tls() -> SpeculativeModel:
    authorities = {"name": "authorities", "key": "ca.crt"}
    return model(tls={"secretName": "cert", "clientCA": authorities, "clientSecretName": "client"})


def template_spec(resource_: SpeculativeModel) -> dict[str, Any]:
    made = serving.deployment(resource_, serving.Revision("a" * 64, "image"), VOLUME, 1)
    spec: dict[str, Any] = made["spec"]["template"]["spec"]
    return spec


def test_programs_that_pods_name_are_in_the_config_map() -> None:
    resource_ = with_tls()
    data = programs.config_map(resource_)["data"]
    named = {match[1] for text in strings(template_spec(resource_)) if (match := PATH.match(text))}
    imported = {"streams.py"}
    assert (
        named | imported
        == set(data)
        == {
            "alive.py",
            "check_volume.py",
            "drain.py",
            "engines.py",
            "renewal.py",
            "streams.py",
        }
    )
    for name, source in data.items():
        assert source == launch.program(name)


def test_each_container_that_runs_a_program_mounts_it() -> None:
    spec = template_spec(with_tls())
    assert {"name": "programs", "configMap": {"name": programs.name(model())}} in spec["volumes"]
    assert [item["name"] for item in spec["containers"]] == ["server", "certificate"]
    for item in spec["containers"]:
        assert any(PATH.match(text) for text in strings(item))
        assert programs.MOUNT in item["volumeMounts"]


def test_leader_of_a_group_mounts_programs_and_its_workers_do_not() -> None:
    layout = Launch(Mode.ORCHESTRATOR, 18, (10, 8))
    revision = serving.Revision("a" * 64, "image", 8, layout)
    made = group.leader_worker_set(model(), revision, VOLUME, 1)
    templates = made["spec"]["leaderWorkerTemplate"]
    leader, worker = (templates[part]["spec"] for part in ("leaderTemplate", "workerTemplate"))
    assert programs.name(model()) in programs.config_map_names(leader)
    assert programs.MOUNT in leader["containers"][0]["volumeMounts"]
    assert programs.name(model()) not in programs.config_map_names(worker)
    assert not any(PATH.match(text) for text in strings(worker))


def test_deployment_has_no_source_code() -> None:
    made = serving.deployment(with_tls(), serving.Revision("a" * 64, "image"), VOLUME, 1)
    assert not [text for text in strings(made) if "import " in text]
    assert len(yaml.safe_dump(made)) < LIMIT_BYTES


def test_changed_program_changes_the_name() -> None:
    before = programs.name(model())
    with patch.object(launch, "program", lambda name: f"# another {name}\n"):
        after = programs.name(model())
    assert before != after
    assert re.fullmatch(r"pair-programs-[0-9a-f]{10}", before)
