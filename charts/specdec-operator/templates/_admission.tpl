{{/* All kinds that the rules of the operator's account let it write; a test compares them. */}}
{{- define "specdec-operator.restricted" -}}
- apiGroups: [""]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [configmaps, persistentvolumeclaims, secrets, services]
- apiGroups: [apps]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [deployments]
- apiGroups: [batch]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [jobs]
- apiGroups: [leaderworkerset.x-k8s.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [leaderworkersets]
- apiGroups: [autoscaling]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [horizontalpodautoscalers]
- apiGroups: [keda.sh]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [scaledobjects]
- apiGroups: [policy]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [poddisruptionbudgets]
- apiGroups: [gateway.networking.k8s.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [httproutes]
- apiGroups: [networking.k8s.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE, DELETE]
  resources: [ingresses, networkpolicies]
{{- end -}}

{{/* `dyn` turns off the check of types, because the kinds differ in their fields. */}}
{{- define "specdec-operator.podVariables" -}}
# The pod templates of a Job, a Deployment or a LeaderWorkerSet; none of other kinds or deletions.
- name: templates
  expression: >-
    request.operation == 'DELETE' ? [] :
    request.resource.resource in ['jobs', 'deployments'] ? [dyn(object).spec.template] :
    request.resource.resource == 'leaderworkersets' ?
    [dyn(object).spec.leaderWorkerTemplate.workerTemplate] +
    (has(dyn(object).spec.leaderWorkerTemplate.leaderTemplate) ?
    [dyn(object).spec.leaderWorkerTemplate.leaderTemplate] : []) : []
- name: pods
  expression: variables.templates.map(t, t.spec)
- name: volumes
  expression: "variables.pods.map(p, has(p.volumes) ? p.volumes : [])"
- name: containers
  expression: "variables.pods.map(p, p.containers + (has(p.initContainers) ? p.initContainers : []))"
{{- end -}}

{{/* These are the restricted Pod Security Standard, without tokens of the API server. */}}
{{- define "specdec-operator.podValidations" -}}
- expression: >-
    request.resource.resource != 'secrets' || request.operation == 'DELETE' ||
    dyn(object).type == 'Opaque' && has(object.metadata.labels) &&
    'app.kubernetes.io/managed-by' in object.metadata.labels &&
    object.metadata.labels['app.kubernetes.io/managed-by'] == 'specdec'
  message: >-
    the account of specdec-operator writes only Secrets of type Opaque with the label
    app.kubernetes.io/managed-by=specdec: create other Secrets with your own account
  reason: Forbidden
- expression: >-
    request.resource.resource != 'services' || request.operation == 'DELETE' ||
    !has(dyn(object).spec.externalIPs) && dyn(object).spec.type != 'ExternalName'
  message: >-
    the account of specdec-operator writes no Service with externalIPs or an external name: create
    it with your own account
  reason: Forbidden
- expression: >-
    variables.pods.all(p, has(p.automountServiceAccountToken) && !p.automountServiceAccountToken &&
    (!has(p.hostNetwork) || !p.hostNetwork) && (!has(p.hostPID) || !p.hostPID) &&
    (!has(p.hostIPC) || !p.hostIPC) && has(p.securityContext) &&
    has(p.securityContext.runAsNonRoot) && p.securityContext.runAsNonRoot &&
    (!has(p.securityContext.runAsUser) || p.securityContext.runAsUser != 0) &&
    has(p.securityContext.seccompProfile) &&
    p.securityContext.seccompProfile.type == 'RuntimeDefault' &&
    !has(p.securityContext.sysctls) && !has(p.securityContext.seLinuxOptions) &&
    !has(p.securityContext.windowsOptions) && !has(p.securityContext.appArmorProfile))
  message: >-
    the account of specdec-operator writes only restricted pods without a token: set
    automountServiceAccountToken to false, runAsNonRoot to true and seccompProfile to RuntimeDefault,
    and remove namespaces of the node
  reason: Forbidden
- expression: >-
    variables.containers.all(list, list.all(c, has(c.securityContext) &&
    has(c.securityContext.allowPrivilegeEscalation) &&
    !c.securityContext.allowPrivilegeEscalation &&
    (!has(c.securityContext.privileged) || !c.securityContext.privileged) &&
    has(c.securityContext.capabilities) && has(c.securityContext.capabilities.drop) &&
    c.securityContext.capabilities.drop.exists(d, d == 'ALL') &&
    !has(c.securityContext.capabilities.add) && !has(c.securityContext.runAsUser) &&
    !has(c.securityContext.runAsNonRoot) && !has(c.securityContext.seccompProfile) &&
    !has(c.securityContext.seLinuxOptions) && !has(c.securityContext.procMount) &&
    !has(c.securityContext.windowsOptions) && !has(c.securityContext.appArmorProfile) &&
    (!has(c.ports) || c.ports.all(p, !has(p.hostPort))) &&
    [has(c.startupProbe) ? c.startupProbe : {}, has(c.readinessProbe) ? c.readinessProbe : {},
    has(c.livenessProbe) ? c.livenessProbe : {},
    has(c.lifecycle) && has(c.lifecycle.postStart) ? c.lifecycle.postStart : {},
    has(c.lifecycle) && has(c.lifecycle.preStop) ? c.lifecycle.preStop : {}].all(h,
    (!has(h.httpGet) || !has(h.httpGet.host)) && (!has(h.tcpSocket) || !has(h.tcpSocket.host)))))
  message: >-
    the account of specdec-operator writes only restricted containers: set allowPrivilegeEscalation
    to false, drop all capabilities, and remove privileges, users, profiles, ports of the node and
    hosts of probes
  reason: Forbidden
- expression: >-
    variables.volumes.all(list, list.all(v, has(v.configMap) || has(v.secret) || has(v.emptyDir) ||
    has(v.persistentVolumeClaim) || has(v.csi) || has(v.projected) && v.projected.sources.all(s,
    has(s.configMap) || has(s.secret) || has(s.downwardAPI))))
  message: >-
    the account of specdec-operator writes only pods whose volumes are ConfigMaps, Secrets, claims,
    CSI volumes and empty directories: remove volumes of the node and tokens
  reason: Forbidden
- expression: >-
    variables.templates.all(t, !has(t.metadata) || !has(t.metadata.annotations) ||
    t.metadata.annotations.all(k, !k.startsWith('cdi.k8s.io/') &&
    (!k.startsWith('container.apparmor.security.beta.kubernetes.io/') ||
    t.metadata.annotations[k] != 'unconfined')))
  message: >-
    the account of specdec-operator writes no pod with CDI devices or without AppArmor: remove the
    annotation
  reason: Forbidden
{{- end -}}
