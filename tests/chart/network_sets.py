"""Value sets for the network policy, metrics and monitoring."""

import json
from typing import Any

from chart.helm import kinds, single
from chart.shown import Shows, pod, policy

NETWORK_SETS: dict[str, tuple[dict[str, Any], Shows]] = {
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
