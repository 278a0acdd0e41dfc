{{- define "podium.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int . }}
runAsGroup: {{ int . }}
{{- end }}
{{- with .Values.fsGroup }}
fsGroup: {{ int . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "podium.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "podium.spread" -}}
{{- range tuple "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "podium.selector" $ | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A projected volume with what a server asks of its clients, or nothing. Takes (dict "root" $ "name" "postgres"). */}}
{{- define "podium.serverVolume" -}}
{{- $values := index .root.Values .name -}}
{{- $sources := list -}}
{{- $secret := default (dict) $values.passwordSecret -}}
{{- if $secret.name -}}
{{- $item := dict "key" $secret.key "path" "password" -}}
{{- $sources = append $sources (dict "secret" (dict "name" $secret.name "items" (list $item))) -}}
{{- end -}}
{{- with $values.secret -}}
{{- if .name -}}
{{- $key := coalesce .passwordKey .tokenKey .nkeyKey .credentialsKey -}}
{{- $sources = append $sources (dict "secret" (dict "name" .name "items" (list (dict "key" $key "path" "secret")))) -}}
{{- end -}}
{{- end -}}
{{- with $values.authority -}}
{{- $items := list (dict "key" .key "path" "ca.crt") -}}
{{- if .secret }}{{ $sources = append $sources (dict "secret" (dict "name" .secret "items" $items)) }}{{ end -}}
{{- if .configMap }}{{ $sources = append $sources (dict "configMap" (dict "name" .configMap "items" $items)) }}{{ end -}}
{{- end -}}
{{- with include "podium.clientSecret" . -}}
{{- $items := list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key") -}}
{{- $sources = append $sources (dict "secret" (dict "name" . "items" $items)) -}}
{{- end -}}
{{- if $sources -}}
{{- toYaml (list (dict "name" .name "projected" (dict "defaultMode" 288 "sources" $sources))) -}}
{{- end -}}
{{- end -}}

{{/* A projected volume with the gateways' own certificate, or nothing. */}}
{{- define "podium.tlsVolume" -}}
{{- $tls := .Values.gateway.tls -}}
{{- with include "podium.tlsSecret" . -}}
{{- $pair := list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key") -}}
{{- $sources := list (dict "secret" (dict "name" . "items" $pair)) -}}
{{- with $tls.clientAuthority -}}
{{- $items := list (dict "key" .key "path" "ca.crt") -}}
{{- if .secret }}{{ $sources = append $sources (dict "secret" (dict "name" .secret "items" $items)) }}{{ end -}}
{{- if .configMap }}{{ $sources = append $sources (dict "configMap" (dict "name" .configMap "items" $items)) }}{{ end -}}
{{- end -}}
{{- toYaml (list (dict "name" "tls" "projected" (dict "defaultMode" 288 "sources" $sources))) -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the gateways' certificate; empty without TLS. */}}
{{- define "podium.tlsSecret" -}}
{{- if .Values.gateway.tls.certManager -}}
{{- printf "%s-gateway-tls" (include "podium.fullname" .) -}}
{{- else -}}
{{- .Values.gateway.tls.secret -}}
{{- end -}}
{{- end -}}

{{/* The Secret with this client's certificate for a server. */}}
{{- define "podium.clientSecret" -}}
{{- $certificate := (index .root.Values .name).clientCertificate -}}
{{- if $certificate.certManager -}}
{{- printf "%s-%s-client" (include "podium.fullname" .root) .name -}}
{{- else -}}
{{- $certificate.secret -}}
{{- end -}}
{{- end -}}

{{- define "podium.poolMap" -}}
{{- default (printf "%s-files" (include "podium.fullname" .)) .Values.pool.existingConfigMap -}}
{{- end -}}

{{/* Volumes of a process. Takes (dict "root" $ "component" … "name" … "values" …). */}}
{{- define "podium.volumes" -}}
{{- $values := .root.Values -}}
{{- $fullname := include "podium.fullname" .root -}}
- name: config
  configMap: {name: {{ .name }}}
- name: pool
  configMap:
    name: {{ include "podium.poolMap" .root }}
    items: [{key: {{ ternary $values.pool.key "pool.toml" (ne $values.pool.existingConfigMap "") }}, path: pool.toml}]
{{- if $values.files }}
- name: files
  configMap:
    name: {{ $fullname }}-files
    items:
    {{- range $file, $_ := $values.files }}
    - {key: {{ printf "file.%s" $file }}, path: {{ $file }}}
    {{- end }}
{{- end }}
{{- range tuple "postgres" "nats" "redis" }}
{{- if or (ne . "redis") (include "podium.calls" $) }}
{{- with include "podium.serverVolume" (dict "root" $.root "name" .) }}
{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $values.vendors.existingSecret (include "podium.calls" .) }}
- name: vendors
  secret: {secretName: {{ $values.vendors.existingSecret }}, defaultMode: 288}
{{- end }}
{{- if and (eq .component "gateway") $values.cell.all }}
- name: cells
  configMap: {name: {{ $fullname }}-files, items: [{key: cells.toml, path: cells.toml}]}
{{- end }}
{{- if eq .component "gateway" }}
{{- with include "podium.tlsVolume" .root }}
{{ . }}
{{- end }}
{{- end }}
{{- include "podium.bundleVolumes" . }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podium.mounts" -}}
{{- $values := .root.Values -}}
- {name: config, mountPath: /etc/podium/config, readOnly: true}
- {name: pool, mountPath: /etc/podium/pool, readOnly: true}
{{- if $values.files }}
- {name: files, mountPath: /etc/podium/files, readOnly: true}
{{- end }}
{{- range tuple "postgres" "nats" "redis" }}
{{- if or (ne . "redis") (include "podium.calls" $) }}
{{- if include "podium.serverVolume" (dict "root" $.root "name" .) }}
- {name: {{ . }}, mountPath: /etc/podium/{{ . }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- if and $values.vendors.existingSecret (include "podium.calls" .) }}
- {name: vendors, mountPath: /etc/podium/vendors, readOnly: true}
{{- end }}
{{- if and (eq .component "gateway") $values.cell.all }}
- {name: cells, mountPath: /etc/podium/cells, readOnly: true}
{{- end }}
{{- if and (eq .component "gateway") (include "podium.tlsSecret" .root) }}
- {name: tls, mountPath: /etc/podium/tls, readOnly: true}
{{- end }}
{{- include "podium.bundleMounts" . }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podium.env" -}}
{{- $values := .root.Values -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)
{{- if include "podium.calls" . }}
{{- range $name, $key := $values.vendors.env }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $values.vendors.existingSecret }}, key: {{ $key }}}}
{{- end }}
{{- end }}
{{- if and (eq .component "planner") $values.conductor.apiKeySecret.name }}
- name: PODIUM_CONDUCTOR_API_KEY
  valueFrom: {secretKeyRef: {{ toJson $values.conductor.apiKeySecret }}}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Liveness asks whether the process is alive, which it is while a model loads; readiness, whether it can work. */}}
{{- define "podium.probes" -}}
{{- $isPlanner := eq .component "planner" -}}
{{- $budget := ternary (int (default 0 .values.modelLoadSeconds)) 120 $isPlanner -}}
startupProbe:
  httpGet: {path: {{ ternary "/readyz" "/healthz" $isPlanner }}, port: health}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ div (add $budget 4) 5 }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{- define "podium.preStop" -}}
{{- $seconds := int .values.preStopSeconds -}}
lifecycle:
  preStop:
    {{- if semverCompare ">=1.30.0-0" (include "podium.kubeVersion" .root) }}
    sleep: {seconds: {{ $seconds }}}
    {{- else }}
    exec: {command: [sleep, {{ $seconds | quote }}]}
    {{- end }}
{{- end -}}

{{- define "podium.resources" -}}
{{- $resources := deepCopy .values.resources -}}
{{- $gpu := default (dict) .values.gpu -}}
{{- if gt (int (default 0 $gpu.count)) 0 -}}
{{- $limits := set (default (dict) $resources.limits) (default "nvidia.com/gpu" $gpu.resource) (int $gpu.count) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "podium.tolerations" -}}
{{- $tolerations := .values.tolerations -}}
{{- $gpu := default (dict) .values.gpu -}}
{{- if gt (int (default 0 $gpu.count)) 0 -}}
{{- $tolerations = append $tolerations (dict "key" (default "nvidia.com/gpu" $gpu.resource) "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "podium.podSpec" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "podium.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "podium.podSecurity" .root | nindent 2 }}
{{- $delay := int (default 0 .values.settings.drain_delay_ms) }}
terminationGracePeriodSeconds: {{ add (int (default 0 .values.preStopSeconds)) (div (add $delay 999) 1000) (int .values.drainSeconds) 5 }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "podium.tolerations" . }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpread.enabled }}
topologySpreadConstraints: {{- include "podium.spread" . | nindent 0 }}
{{- end }}
{{- include "podium.bundleInit" . }}
containers:
- name: {{ .component }}
  image: {{ include "podium.image" (dict "root" .root "image" .values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: [podium-{{ .component }}, --config, /etc/podium/config/podium.toml]
  env: {{- include "podium.env" . | nindent 2 }}
  ports:
  {{- if eq .component "gateway" }}
  - {name: http, containerPort: 8080}
  - {name: grpc, containerPort: 8081}
  - {name: metrics, containerPort: 9464}
  - {name: health, containerPort: 8084}
  {{- else }}
  - {name: health, containerPort: {{ ternary 8082 8083 (eq .component "planner") }}}
  {{- end }}
  {{- include "podium.probes" . | nindent 2 }}
  {{- if gt (int (default 0 .values.preStopSeconds)) 0 }}
  {{- include "podium.preStop" . | nindent 2 }}
  {{- end }}
  resources: {{- include "podium.resources" . | nindent 4 }}
  securityContext: {{- include "podium.containerSecurity" . | nindent 4 }}
  volumeMounts: {{- include "podium.mounts" . | nindent 2 }}
volumes: {{- include "podium.volumes" . | nindent 0 }}
{{- end -}}
