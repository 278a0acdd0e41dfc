{{/* The data of the ConfigMap with the files that processes share. */}}
{{- define "podium.fileData" -}}
{{- if not .Values.pool.existingConfigMap }}
pool.toml: {{ toJson .Values.pool.content }}
{{- end }}
{{- if .Values.cell.all }}
cells.toml: {{ include "podium.cells" . | toJson }}
{{- end }}
{{- range $file, $content := .Values.files }}
{{ printf "file.%s" $file }}: {{ toJson $content }}
{{- end }}
{{- end -}}

{{/* The files whose change replaces the pods: all but the pool, which processes follow, unless `pool.restartOnChange` is set. */}}
{{- define "podium.restartData" -}}
{{- $data := include "podium.fileData" . | fromYaml -}}
{{- toJson (ternary $data (omit $data "pool.toml") .Values.pool.restartOnChange) -}}
{{- end -}}
