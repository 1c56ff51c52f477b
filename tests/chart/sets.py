"""Value sets that the chart must render, and a check of the effect of each set."""

from typing import Any

from chart import helm
from chart.helm import environment, images, kinds, operator, single
from chart.network_sets import NETWORK_SETS
from chart.shown import Shows, named, names, namespaces, pod, spread

# In this namespace, a Role lets the operator read its own pod.
SYSTEM = helm.NAMESPACE
DIGEST = "sha256:" + "0123456789abcdef" * 4
OPENSHIFT = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
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


SETS: dict[str, tuple[dict[str, Any], Shows]] = {
    "defaults": ({}, lambda o: "ClusterRole" in kinds(o) and namespaces(o, "Role") == {SYSTEM}),
    "one-namespace": (
        {"watchNamespaces": ["team-a"]},
        lambda o: namespaces(o, "Role") == {SYSTEM, "team-a"} and "ClusterRole" not in kinds(o),
    ),
    "two-namespaces": (
        {"watchNamespaces": ["team-a", "team-b"]},
        lambda o: (
            namespaces(o, "RoleBinding") == {SYSTEM, "team-a", "team-b"}
            and environment(o)["SPECDEC_NAMESPACES"] == "team-a,team-b"
        ),
    ),
    "other-excluded-namespaces": (
        {"excludedNamespaces": ["vault"]},
        lambda o: (
            environment(o)["SPECDEC_EXCLUDED_NAMESPACES"] == "vault"
            and "!(request.namespace in ['vault'])"
            in str(single(o, "ValidatingAdmissionPolicy")["spec"]["validations"])
        ),
    ),
    "no-excluded-namespace": (
        {"excludedNamespaces": []},
        lambda o: (
            "SPECDEC_EXCLUDED_NAMESPACES" not in environment(o)
            and "request.namespace" not in str(single(o, "ValidatingAdmissionPolicy"))
        ),
    ),
    "no-admission-policy": (
        {"admissionPolicy": {"enabled": False}},
        lambda o: not any(kind.startswith("ValidatingAdmission") for kind in kinds(o)),
    ),
    "policy-of-another-account": (
        {"serviceAccount": {"name": "given"}},
        lambda o: (
            "'system:serviceaccount:specdec-system:given'"
            in single(o, "ValidatingAdmissionPolicy")["spec"]["matchConditions"][0]["expression"]
        ),
    ),
    "digest": (
        {"image": {"repository": "registry.example.com:5000/op", "digest": DIGEST}},
        lambda o: operator(o)["image"] == f"registry.example.com:5000/op@{DIGEST}",
    ),
    "reference-digest": (
        {"referenceImage": {"digest": DIGEST}},
        lambda o: (
            environment(o)["SPECDEC_REFERENCE_IMAGE"] == f"ghcr.io/specdec/reference@{DIGEST}"
        ),
    ),
    "registry": (
        {"registry": "registry.example.com:5000/ml"},
        lambda o: (
            all(i.startswith("registry.example.com:5000/ml/operator:") for i in images(o))
            and "SPECDEC_REFERENCE_IMAGE" not in environment(o)
        ),
    ),
    "global": (
        {
            "global": {
                "imageRegistry": "mirror.example.com/specdec",
                "imagePullSecrets": [{"name": "mirror"}],
                "storageClass": "of another chart",
            },
            "referenceImage": {"tag": "2"},
            "imagePullSecrets": [{"name": "own"}, {"name": "mirror"}],
        },
        lambda o: (
            all(i.startswith("mirror.example.com/specdec/operator:") for i in images(o))
            and environment(o)["SPECDEC_REFERENCE_IMAGE"]
            == "mirror.example.com/specdec/reference:2"
            and [p["imagePullSecrets"] for p in helm.pods(o)]
            == [[{"name": "mirror"}, {"name": "own"}]] * len(helm.pods(o))
        ),
    ),
    "tag": (
        {"image": {"tag": "9.1.0", "pullPolicy": "Always"}},
        lambda o: (
            operator(o)["image"].endswith(":9.1.0") and operator(o)["imagePullPolicy"] == "Always"
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
            and names(o, "Role") == {"specdec-operator-pod", "specdec-operator-lease"}
            and named(o, "Role", "specdec-operator-lease")["rules"][1]["resourceNames"]
            == ["specdec-operator"]
            and named(o, "RoleBinding", "specdec-operator-lease")["subjects"][0]["name"]
            == "specdec-operator"
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
    "part-of-the-name": (
        {"nameOverride": "speculation"},
        lambda o: (
            single(o, "Deployment")["metadata"]["name"] == "specdec-operator-speculation"
            and environment(o).keys() >= {"SPECDEC_POD_NAME"}
        ),
    ),
    "volumes": (
        {
            "extraVolumes": [{"name": "ca", "configMap": {"name": "authorities"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
            "extraEnv": [{"name": "SSL_CERT_DIR", "value": "/ca"}],
        },
        lambda o: (
            [v["name"] for v in pod(o)["spec"]["volumes"]] == ["tmp", "ca"]
            and operator(o)["volumeMounts"][1]["mountPath"] == "/ca"
            and environment(o)["SSL_CERT_DIR"] == "/ca"
        ),
    ),
    "probes": (
        {"probes": {"startup": {"failureThreshold": 300}, "liveness": {"initialDelaySeconds": 9}}},
        lambda o: (
            operator(o)["startupProbe"]["failureThreshold"] == 300
            and operator(o)["startupProbe"]["periodSeconds"] == 2
            and operator(o)["livenessProbe"]["initialDelaySeconds"] == 9
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
        {"podSecurityContext": OPENSHIFT},
        lambda o: not OPENSHIFT.keys() & pod(o)["spec"]["securityContext"].keys(),
    ),
    "budget": (
        {"podDisruptionBudget": {"enabled": True, "maxUnavailable": 0}},
        lambda o: single(o, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 0,
    ),
    **NETWORK_SETS,
}
