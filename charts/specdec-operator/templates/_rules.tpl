{{/*
Nothing more than one reconcile uses; tests hold it to manifests/install/rbac.yaml. No Secret is
read: Jobs take tokens by reference, so that the kubelet reads them and the operator never does.
*/}}
{{- define "specdec-operator.rules" -}}
- apiGroups: [specdec.dev]
  resources: [speculativemodels]
  verbs: [get, list, watch]
- apiGroups: [specdec.dev]
  resources: [speculativemodels/status]
  verbs: [patch]
# To set blockOwnerDeletion where owner references are checked (OpenShift).
- apiGroups: [specdec.dev]
  resources: [speculativemodels/finalizers]
  verbs: [update]
# Claims go with their owner; the operator deletes none of them.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, create, patch]
# The draft's server goes when a resource's topology has no more need of it.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
# Whether a Service leads to pods that are ready.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch, delete]
# Groups of pods for more GPUs than one node has; the definition need not be installed.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, watch, create, patch, delete]
# What only some resources ask for beside their servers; KEDA and the Gateway API need not be
# installed.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses, networkpolicies]
  verbs: [list, watch, create, patch, delete]
# The key of such a group is drawn once; the operator cannot read it, nor any other Secret.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Superseded Jobs and repositories are deleted.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# How far a build or a download is.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# To report transitions, and to read why the API server refuses the pod of a Job.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, list]
{{- end -}}

{{/* Beyond namespaces, and so only of the mode that watches all of them. */}}
{{- define "specdec-operator.clusterRules" -}}
# To start watching when the definition appears after the operator.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end -}}
