{{- define "podium.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of one component's pods that never change. Takes (dict "root" $ "component" "gateway" "pool" ""). */}}
{{- define "podium.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
podium.pool: {{ . }}
{{- end }}
{{- end -}}

{{- define "podium.labels" -}}
{{- with .root.Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
{{ include "podium.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The reference of an image. Takes (dict "root" $ "image" overrides). */}}
{{- define "podium.image" -}}
{{- $image := merge (dict) (default (dict) .image) -}}
{{- $repository := default .root.Values.image.repository $image.repository -}}
{{- $tag := default (default .root.Chart.AppVersion .root.Values.image.tag) $image.tag -}}
{{- $digest := default "" $image.digest -}}
{{- if not $image.repository -}}
{{- $digest = default .root.Values.image.digest $digest -}}
{{- end -}}
{{- if $digest -}}{{ $repository }}@{{ $digest }}{{- else -}}{{ $repository }}:{{ $tag }}{{- end -}}
{{- end -}}

{{- define "podium.serviceAccountName" -}}
{{- if .values.serviceAccount.create -}}
{{- default (printf "%s-%s" (include "podium.fullname" .root) .component) .values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Lines `key = value` of TOML, sorted by key. */}}
{{- define "podium.toml" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "podium.kubeVersion" -}}
{{- default .Capabilities.KubeVersion.Version .Values.kubeVersion | trimPrefix "v" -}}
{{- end -}}

{{/* A planner pool with the defaults of `planner` for what it leaves out, as JSON. Takes (dict "root" $ "pool" values). */}}
{{- define "podium.plannerPool" -}}
{{- $defaults := omit .root.Values.planner "pools" "settings" -}}
{{- $pool := mustMergeOverwrite (deepCopy $defaults) (deepCopy (default (dict) .pool)) -}}
{{- $settings := mustMergeOverwrite (deepCopy .root.Values.planner.settings) (default (dict) (default (dict) .pool).settings) -}}
{{- toJson (set $pool "settings" $settings) -}}
{{- end -}}
