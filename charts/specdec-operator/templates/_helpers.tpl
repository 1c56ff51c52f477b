{{- define "specdec-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "specdec-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "specdec-operator.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The labels that identify the pods of this release; immutable as the Deployment's selector. */}}
{{- define "specdec-operator.selector" -}}
app.kubernetes.io/name: specdec-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. The selector's come last: no value can take their place. */}}
{{- define "specdec-operator.labels" -}}
{{- $own := dict
  "app.kubernetes.io/part-of" "specdec"
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/version" .Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_"))
-}}
{{- $selector := include "specdec-operator.selector" . | fromYaml -}}
{{- mergeOverwrite (deepCopy .Values.commonLabels) $own $selector | toYaml -}}
{{- end -}}

{{- define "specdec-operator.metadata" -}}
name: {{ include "specdec-operator.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "specdec-operator.labels" . | nindent 2 }}
{{- end -}}

{{/* Registry and organisation of the images. */}}
{{- define "specdec-operator.registry" -}}
{{- .Values.global.imageRegistry | default .Values.registry -}}
{{- end -}}

{{/* An image: by digest if there is one, so that nothing else can be pulled. */}}
{{- define "specdec-operator.reference" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{- define "specdec-operator.image" -}}
{{- $image := .Values.image -}}
{{- $repository := $image.repository | default (printf "%s/operator" (include "specdec-operator.registry" .)) -}}
{{- $tag := $image.tag | default .Chart.AppVersion -}}
{{- include "specdec-operator.reference" (dict "repository" $repository "tag" $tag "digest" $image.digest) -}}
{{- end -}}

{{/* Empty without values of its own: the operator then uses `reference` beside its own image. */}}
{{- define "specdec-operator.referenceImage" -}}
{{- $image := .Values.referenceImage -}}
{{- if or $image.repository $image.tag $image.digest -}}
{{- $repository := $image.repository | default (printf "%s/reference" (include "specdec-operator.registry" .)) -}}
{{- $tag := $image.tag | default .Chart.AppVersion -}}
{{- include "specdec-operator.reference" (dict "repository" $repository "tag" $tag "digest" $image.digest) -}}
{{- end -}}
{{- end -}}

{{/* Null stands for the number that OpenShift draws: the field is then left out. */}}
{{- define "specdec-operator.given" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}
