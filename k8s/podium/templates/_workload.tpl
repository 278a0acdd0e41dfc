{{/*
The objects of one component, or of one planner pool: settings, Deployment, disruption budget, autoscaler.
Takes (dict "root" $ "component" "planner" "pool" "cpu" "name" "podium-planner-cpu" "values" values).
*/}}
{{- define "podium.workload" -}}
{{- $settings := include "podium.settings" . -}}
{{- $kind := .values.autoscaling.kind -}}
{{- $hasGpu := gt (int (dig "gpu" "count" 0 .values)) 0 -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  labels: {{- include "podium.labels" . | nindent 4 }}
data:
  podium.toml: |
    {{- $settings | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels: {{- include "podium.labels" . | nindent 4 }}
spec:
  {{- if eq $kind "none" }}
  replicas: {{ int .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  progressDeadlineSeconds: {{ add 600 (int (default 0 .values.modelLoadSeconds)) }}
  strategy:
    type: RollingUpdate
    # A further pod would wait for a GPU that the old one has.
    rollingUpdate: {maxSurge: {{ ternary 0 1 $hasGpu }}, maxUnavailable: {{ ternary 1 0 $hasGpu }}}
  selector:
    matchLabels: {{- include "podium.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "podium.selector" . | nindent 8 }}
        {{- with .root.Values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/settings: {{ sha256sum $settings }}
        checksum/files: {{ include "podium.restartData" .root | sha256sum }}
        checksum/bundles: {{ toJson .root.Values.bundles | sha256sum }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec: {{- include "podium.podSpec" . | nindent 6 }}
{{- if .root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "podium.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "podium.selector" . | nindent 6 }}
{{- end }}
{{- if eq $kind "hpa" }}
---
{{ include "podium.hpa" . }}
{{- else if eq $kind "keda" }}
---
{{ include "podium.scaledObject" . }}
{{- end }}
{{- end -}}

{{- define "podium.scaleDown" -}}
scaleDown:
  stabilizationWindowSeconds: 300
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
{{- end -}}

{{- define "podium.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{- include "podium.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ int .values.autoscaling.min }}
  maxReplicas: {{ int .values.autoscaling.max }}
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ int .values.autoscaling.cpuPercent }}}}
  behavior: {{- include "podium.scaleDown" . | nindent 4 }}
{{- end -}}

{{/*
How many processes the busiest lane would fill: its running tasks, and while none of its slots is free also those that wait,
divided by the slots of a process. Tasks that wait for the limits of vendors while slots are free need no further process.
*/}}
{{- define "podium.openTasksQuery" -}}
{{- $lane := printf "podium_lane=~%q" (ternary ".*[.]plan" ".*[.]step[.].*" (eq .component "planner")) -}}
{{- $namespace := printf "namespace=%q" .root.Release.Namespace -}}
{{- $tasks := printf "max by (podium_lane, podium_state) (podium_lane_tasks{%s,%s,podium_state=~%%q})" $namespace $lane -}}
{{- $free := printf "sum by (podium_lane) (podium_lane_slots_free{%s,%s,pod=~%q})" $namespace $lane (printf "%s-.*" .name) -}}
{{- $settings := mustMergeOverwrite (deepCopy .root.Values.settings) .values.settings -}}
{{- $slots := 256 -}}
{{- if eq .component "executor" -}}
{{- $slots = default 256 $settings.step_slots -}}
{{- else if contains "llama:" (include "podium.conductor" .root.Values.conductor.use) -}}
{{- $slots = default (default 8 $settings.plan_sequences) $settings.plan_slots -}}
{{- else -}}
{{- $slots = default 256 $settings.plan_slots -}}
{{- end -}}
max(sum by (podium_lane) ({{ printf $tasks "running" }} or {{ printf $tasks "backlog|queued" }} and on (podium_lane) {{ $free }} < 1)) / {{ int $slots }}
{{- end -}}

{{- define "podium.scaledObject" -}}
{{- $scaling := .values.autoscaling -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels: {{- include "podium.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicaCount: {{ int $scaling.min }}
  maxReplicaCount: {{ int $scaling.max }}
  pollingInterval: {{ int .root.Values.keda.pollingSeconds }}
  # Without metrics the number stays as it is.
  fallback: {failureThreshold: 4, replicas: {{ int $scaling.min }}, behavior: currentReplicasIfHigher}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {{- include "podium.scaleDown" . | nindent 8 }}
  triggers:
  - type: prometheus
    metricType: AverageValue
    metadata:
      serverAddress: {{ .root.Values.keda.prometheusAddress | quote }}
      query: {{ default (include "podium.openTasksQuery" .) $scaling.query | quote }}
      threshold: {{ default .root.Values.keda.busyTarget $scaling.threshold | quote }}
{{- end -}}
