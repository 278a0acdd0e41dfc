{{/* The names of the bundles that the conductors are, with commas. */}}
{{- define "podium.bundlesUsed" -}}
{{- $names := list -}}
{{- range list .Values.conductor.use .Values.conductor.next -}}
{{- if hasPrefix "bundle:" . }}{{ $names = append $names (trimPrefix "bundle:" .) }}{{ end -}}
{{- end -}}
{{- join "," (uniq $names) -}}
{{- end -}}

{{/* Planners get whole bundles; gateways and executors read the manifest only. */}}
{{- define "podium.bundleVolumes" -}}
{{- $names := include "podium.bundlesUsed" .root -}}
{{- if $names }}
- name: manifests
  configMap:
    name: {{ include "podium.fullname" .root }}-bundles
    items:
    {{- range splitList "," $names }}
    - {key: {{ . }}.toml, path: {{ . }}/conductor.toml}
    {{- end }}
{{- if eq .component "planner" }}
{{- range $name := splitList "," $names }}
{{- $bundle := index $.root.Values.bundles $name }}
- name: bundle-{{ $name }}
  {{- if $bundle.image }}
  image: {{- toYaml $bundle.image | nindent 4 }}
  {{- else if $bundle.claim }}
  persistentVolumeClaim: {claimName: {{ $bundle.claim.name }}, readOnly: true}
  {{- else }}
  emptyDir: {sizeLimit: {{ $.root.Values.downloader.sizeLimit }}}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "podium.bundleMounts" -}}
{{- $names := include "podium.bundlesUsed" .root -}}
{{- if and $names (eq .component "planner") }}
{{- range $name := splitList "," $names }}
{{- $bundle := index $.root.Values.bundles $name }}
- name: bundle-{{ $name }}
  mountPath: /var/lib/podium/bundles/{{ $name }}
  readOnly: true
  {{- with $bundle.claim }}
  {{- with .subPath }}
  subPath: {{ . }}
  {{- end }}
  {{- end }}
{{- end }}
{{- else if $names }}
- {name: manifests, mountPath: /var/lib/podium/bundles, readOnly: true}
{{- end }}
{{- end -}}

{{/* An init container for each bundle that is downloaded. */}}
{{- define "podium.bundleInit" -}}
{{- $downloads := list -}}
{{- if and (eq .component "planner") (include "podium.bundlesUsed" .root) -}}
{{- range $name := splitList "," (include "podium.bundlesUsed" .root) -}}
{{- if (index $.root.Values.bundles $name).download }}{{ $downloads = append $downloads $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $downloads }}
initContainers:
{{- range $name := . }}
{{- $bundle := index $.root.Values.bundles $name }}
- name: download-{{ $name }}
  image: {{ include "podium.image" (dict "root" $.root) }}
  # Continues an interrupted download, checks each file against the manifest's checksum, and names it when it is complete.
  command:
  - podium
  - bundle
  - fetch
  - /bundle
  - --manifest
  - /manifests/{{ $name }}/conductor.toml
  {{- range $bundle.download.files }}
  - --file
  - {{ printf "%s=%s" .name .url | quote }}
  {{- end }}
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {memory: 256Mi}
  securityContext: {{- include "podium.containerSecurity" $ | nindent 4 }}
  volumeMounts:
  - {name: manifests, mountPath: /manifests, readOnly: true}
  - {name: bundle-{{ $name }}, mountPath: /bundle}
{{- end }}
{{- end }}
{{- end -}}
