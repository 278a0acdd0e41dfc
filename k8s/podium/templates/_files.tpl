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
