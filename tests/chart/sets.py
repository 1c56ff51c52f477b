"""Value sets that the chart must render, and how each shows in what is rendered."""

import json
from collections.abc import Callable
from typing import Any

from chart import helm
from chart.helm import Object, environment, kinds, operator, single

Shows = Callable[[list[Object]], bool]
DIGEST = "sha256:" + "0123456789abcdef" * 4
_OPENSHIFT = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
            ]
        }
    }
}

_CHOSEN = {"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}}}


def pod(objects: list[Object]) -> Object:
    """The operator's pod template."""
    template: Object = single(objects, "Deployment")["spec"]["template"]
    return template


def spread(objects: list[Object]) -> list[Object]:
    """How the operator's pods are spread."""
    constraints: list[Object] = pod(objects)["spec"]["topologySpreadConstraints"]
    return constraints


def policy(objects: list[Object]) -> Object:
    """The rules of the network policy."""
    spec: Object = single(objects, "NetworkPolicy")["spec"]
    return spec


def namespaces(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["namespace"] for o in objects if o["kind"] == kind}


SETS: dict[str, tuple[dict[str, Any], Shows]] = {
    "defaults": ({}, lambda o: "ClusterRole" in kinds(o) and "Role" not in kinds(o)),
    "one-namespace": (
        {"watchNamespaces": ["team-a"]},
        lambda o: namespaces(o, "Role") == {"team-a"} and "ClusterRole" not in kinds(o),
    ),
    "two-namespaces": (
        {"watchNamespaces": ["team-a", "team-b"]},
        lambda o: (
            namespaces(o, "RoleBinding") == {"team-a", "team-b"}
            and environment(o)["SPECDEC_NAMESPACES"] == "team-a,team-b"
            and helm.scope(o) == ["--namespace=team-a", "--namespace=team-b"]
        ),
    ),
    "digest": (
        {"image": {"repository": "registry.example.com:5000/op", "digest": DIGEST}},
        lambda o: operator(o)["image"] == f"registry.example.com:5000/op@{DIGEST}",
    ),
    "reference-digest": (
        {"referenceImage": {"digest": DIGEST}},
        lambda o: environment(o)["SPECDEC_REFERENCE_IMAGE"].endswith(f"@{DIGEST}"),
    ),
    "tag": (
        {"image": {"tag": "0.1.0", "pullPolicy": "Always"}},
        lambda o: (
            operator(o)["image"].endswith(":0.1.0") and operator(o)["imagePullPolicy"] == "Always"
        ),
    ),
    "pull-secrets": (
        {"imagePullSecrets": [{"name": "registry"}]},
        lambda o: all(p["imagePullSecrets"] == [{"name": "registry"}] for p in helm.pods(o)),
    ),
    "no-definition": (
        {"crds": {"install": False}},
        lambda o: "CustomResourceDefinition" not in kinds(o),
    ),
    "definition-goes": (
        {"crds": {"keep": False}},
        lambda o: "annotations" not in single(o, "CustomResourceDefinition")["metadata"],
    ),
    "own-account": (
        {"serviceAccount": {"create": False, "name": "given"}},
        lambda o: (
            "ServiceAccount" not in kinds(o)
            and pod(o)["spec"]["serviceAccountName"] == "given"
            and single(o, "ClusterRoleBinding")["subjects"][0]["name"] == "given"
        ),
    ),
    "account-annotations": (
        {"serviceAccount": {"annotations": {"example.com/role": "arn"}}},
        lambda o: (
            single(o, "ServiceAccount")["metadata"]["annotations"] == {"example.com/role": "arn"}
        ),
    ),
    "no-rights": (
        {"rbac": {"create": False}},
        lambda o: not any("Role" in kind for kind in kinds(o)),
    ),
    "no-rights-of-people": (
        {"rbac": {"aggregate": {"enabled": False}}},
        lambda o: single(o, "ClusterRole")["metadata"]["name"] == helm.RELEASE,
    ),
    "top-for-view": (
        {"rbac": {"aggregate": {"top": True}}},
        lambda o: any(
            rule["resources"] == ["pods/proxy"]
            for role in o
            if role["metadata"]["name"] == f"{helm.RELEASE}-view"
            for rule in role["rules"]
        ),
    ),
    "standby": (
        {"leaderElection": {"enabled": True, "replicas": 3, "seconds": 20}},
        lambda o: (
            single(o, "Deployment")["spec"]["replicas"] == 3
            and environment(o)["SPECDEC_LEASE"] == "specdec-system/specdec-operator"
            and environment(o)["SPECDEC_LEASE_SECONDS"] == "20"
            and namespaces(o, "Role") == namespaces(o, "RoleBinding") == {"specdec-system"}
            and single(o, "Role")["rules"][1]["resourceNames"] == ["specdec-operator"]
            and single(o, "RoleBinding")["subjects"][0]["name"] == "specdec-operator"
            and len(pod(o)["spec"]["topologySpreadConstraints"]) == 1
        ),
    ),
    "standby-of-one-namespace": (
        {"leaderElection": {"enabled": True}, "watchNamespaces": ["team-a"]},
        lambda o: (
            namespaces(o, "Role") == {"team-a", "specdec-system"} and "ClusterRole" not in kinds(o)
        ),
    ),
    "fetch-networks": (
        {"fetch": {"allowedNetworks": ["10.20.0.0/16", "fd12::/16"]}},
        lambda o: environment(o)["SPECDEC_FETCH_ALLOWED_NETWORKS"] == "10.20.0.0/16,fd12::/16",
    ),
    "settings": (
        {"workers": 16, "resyncSeconds": 120, "extraEnv": [{"name": "HTTPS_PROXY", "value": "p"}]},
        lambda o: (
            environment(o).items()
            >= {
                "SPECDEC_WORKERS": "16",
                "SPECDEC_RESYNC_SECONDS": "120",
                "HTTPS_PROXY": "p",
            }.items()
        ),
    ),
    "log": (
        {"logFormat": "plain"},
        lambda o: "--log-format=plain" in operator(o)["command"],
    ),
    "placed": (
        {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "infra", "operator": "Exists"}],
            "affinity": _AFFINITY,
            "priorityClassName": "system-cluster-critical",
        },
        lambda o: (
            pod(o)["spec"]["affinity"] == _AFFINITY
            and pod(o)["spec"]["tolerations"][0]["key"] == "infra"
            and pod(o)["spec"]["priorityClassName"] == "system-cluster-critical"
        ),
    ),
    "spread": (
        {
            "leaderElection": {"enabled": True},
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {**_CHOSEN, "topologyKey": "rack", "maxSkew": 1},
            ],
        },
        lambda o: (
            [c["topologyKey"] for c in spread(o)] == ["zone", "rack"]
            and spread(o)[0]["labelSelector"] == single(o, "Deployment")["spec"]["selector"]
            and spread(o)[1]["labelSelector"] == _CHOSEN["labelSelector"]
        ),
    ),
    "own-name": (
        {"fullnameOverride": "speculation", "leaderElection": {"enabled": True}},
        lambda o: (
            single(o, "Deployment")["metadata"]["name"] == "speculation"
            and environment(o)["SPECDEC_LEASE"].endswith("/speculation")
            and single(o, "ClusterRoleBinding")["roleRef"]["name"] == "speculation"
        ),
    ),
    "deployment": (
        {
            "revisionHistoryLimit": 5,
            "deploymentAnnotations": {"example.com/reload": "true"},
            "extraArgs": ["--verbose"],
        },
        lambda o: (
            single(o, "Deployment")["spec"]["revisionHistoryLimit"] == 5
            and single(o, "Deployment")["metadata"]["annotations"]
            == {"example.com/reload": "true"}
            and operator(o)["command"][-1] == "--verbose"
        ),
    ),
    "resources": (
        {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}},
        lambda o: operator(o)["resources"]["limits"] == {"memory": "1Gi"},
    ),
    "labels": (
        {
            "commonLabels": {"cost-centre": "42", "app.kubernetes.io/name": "taken"},
            "podLabels": {"sidecar.example.com/inject": "false"},
            "podAnnotations": {"example.com/note": "yes"},
        },
        lambda o: (
            all(x["metadata"]["labels"]["cost-centre"] == "42" for x in o)
            and pod(o)["metadata"]["labels"]["sidecar.example.com/inject"] == "false"
            and pod(o)["metadata"]["annotations"]["example.com/note"] == "yes"
        ),
    ),
    "openshift": (
        {"podSecurityContext": _OPENSHIFT},
        lambda o: not _OPENSHIFT.keys() & pod(o)["spec"]["securityContext"].keys(),
    ),
    "budget": (
        {"podDisruptionBudget": {"enabled": True, "maxUnavailable": 0}},
        lambda o: single(o, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 0,
    ),
    "no-policy": (
        {"networkPolicy": {"enabled": False}},
        lambda o: "NetworkPolicy" not in kinds(o),
    ),
    "narrow-policy": (
        {
            "networkPolicy": {
                "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
                "apiServer": {"ports": [8443], "cidrs": ["10.0.0.10/32", "fd00::1/128"]},
                "extraEgress": [{"ports": [{"port": 3128}]}],
            }
        },
        lambda o: (
            "monitoring" in str(policy(o)["ingress"][0]["from"])
            and policy(o)["egress"][1]["ports"] == [{"port": 8443}]
            and policy(o)["egress"][1]["to"][1] == {"ipBlock": {"cidr": "fd00::1/128"}}
            and policy(o)["egress"][2] == {"ports": [{"port": 3128}]}
        ),
    ),
    "metrics-for-everybody": (
        {"networkPolicy": {"metricsFrom": []}},
        lambda o: policy(o)["ingress"] == [{"ports": [{"port": "metrics"}]}],
    ),
    "own-dns": (
        {
            "networkPolicy": {
                "dns": {"to": [{"ipBlock": {"cidr": "10.0.0.10/32"}}], "ports": [5353]}
            }
        },
        lambda o: (
            policy(o)["egress"][0]
            == {
                "ports": [{"port": 5353, "protocol": p} for p in ("UDP", "TCP")],
                "to": [{"ipBlock": {"cidr": "10.0.0.10/32"}}],
            }
        ),
    ),
    "no-dns": (
        {"networkPolicy": {"dns": {"enabled": False}}},
        lambda o: (
            [port["port"] for rule in policy(o)["egress"] for port in rule["ports"]] == [443, 6443]
        ),
    ),
    "service-monitor": (
        {
            "metrics": {
                "annotations": False,
                "service": {"enabled": False},
                "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            }
        },
        lambda o: (
            single(o, "ServiceMonitor")["metadata"]["labels"]["release"] == "prometheus"
            and "Service" in kinds(o)
            and "prometheus.io/scrape" not in pod(o)["metadata"]["annotations"]
        ),
    ),
    "pod-monitor": (
        {
            "metrics": {
                "service": {"enabled": False},
                "podMonitor": {"enabled": True, "interval": "1m"},
            }
        },
        lambda o: (
            single(o, "PodMonitor")["spec"]["podMetricsEndpoints"]
            == [{"port": "metrics", "interval": "1m"}]
            and not kinds(o) & {"Service", "Pod"}
        ),
    ),
    "models-monitor": (
        {"watchNamespaces": ["team-a"], "metrics": {"models": {"enabled": True}}},
        lambda o: (
            single(o, "PodMonitor")["spec"]["namespaceSelector"] == {"matchNames": ["team-a"]}
            and single(o, "PodMonitor")["metadata"]["name"] == "specdec-operator-models"
        ),
    ),
    "rules": (
        {"metrics": {"rules": {"enabled": True, "labels": {"release": "prometheus"}}}},
        lambda o: (
            single(o, "PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
            and "{{ $labels.model_name }}" in str(single(o, "PrometheusRule")["spec"])
        ),
    ),
    "dashboard": (
        {"metrics": {"dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}}}},
        lambda o: (
            single(o, "ConfigMap")["metadata"]["labels"]["grafana_dashboard"] == "yes"
            and json.loads(single(o, "ConfigMap")["data"]["specdec.json"])["uid"] == "specdec"
        ),
    ),
}
