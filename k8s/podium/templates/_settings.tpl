{{/* A conductor as the services name it: bundle:NAME is a folder. */}}
{{- define "podium.conductor" -}}
{{- if hasPrefix "bundle:" . -}}
llama:/var/lib/podium/bundles/{{ trimPrefix "bundle:" . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* "true" if planners call a model over the network, and so need Redis and the vendors' keys. */}}
{{- define "podium.plannersCall" -}}
{{- range list .Values.conductor.use .Values.conductor.next -}}
{{- if or (hasPrefix "worker:" .) (hasPrefix "model:" .) (hasPrefix "remote:" .) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if this component calls models. */}}
{{- define "podium.calls" -}}
{{- if eq .component "executor" -}}true
{{- else if eq .component "planner" -}}{{ include "podium.plannersCall" .root }}
{{- end -}}
{{- end -}}

{{/* The keys of a server's certificates, as JSON. Takes (dict "name" "postgres" "values" .Values.postgres). */}}
{{- define "podium.certificateKeys" -}}
{{- $keys := dict -}}
{{- if or .values.authority.secret .values.authority.configMap -}}
{{- $_ := set $keys (printf "%s_root_certificates" .name) (printf "/etc/podium/%s/ca.crt" .name) -}}
{{- end -}}
{{- if or .values.clientCertificate.secret .values.clientCertificate.certManager -}}
{{- $_ := set $keys (printf "%s_client_certificate" .name) (printf "/etc/podium/%s/tls.crt" .name) -}}
{{- $_ := set $keys (printf "%s_client_key" .name) (printf "/etc/podium/%s/tls.key" .name) -}}
{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{/* The settings file of a process. Takes (dict "root" $ "component" "gateway" "values" values). */}}
{{- define "podium.settings" -}}
{{- $values := .root.Values -}}
{{- $keys := dict "postgres" $values.postgres.url "nats" $values.nats.url "pool" "/etc/podium/pool/pool.toml" -}}
{{- $_ := set $keys "conductor" (include "podium.conductor" $values.conductor.use) -}}
{{- with $values.conductor.next -}}
{{- $_ := set $keys "conductor_next" (include "podium.conductor" .) -}}
{{- $_ := set $keys "conductor_next_share" (toString $values.conductor.nextShare) -}}
{{- end -}}
{{- $_ := set $keys "postgres_migrate" (ternary "auto" "never" (eq $values.migrations.mode "onStart")) -}}
{{- $_ := set $keys "allow_remote" true -}}
{{- $_ := set $keys "drain_ms" (mul (int .values.drainSeconds) 1000) -}}
{{- if $values.postgres.passwordSecret.name -}}
{{- $_ := set $keys "postgres_password" "file:/etc/podium/postgres/password" -}}
{{- end -}}
{{- with $values.nats.secret -}}
{{- if .passwordKey }}{{ $_ := set $keys "nats_password" "file:/etc/podium/nats/secret" }}{{ end -}}
{{- if .tokenKey }}{{ $_ := set $keys "nats_token" "file:/etc/podium/nats/secret" }}{{ end -}}
{{- if .nkeyKey }}{{ $_ := set $keys "nats_nkey" "file:/etc/podium/nats/secret" }}{{ end -}}
{{- if .credentialsKey }}{{ $_ := set $keys "nats_credentials" "/etc/podium/nats/secret" }}{{ end -}}
{{- end -}}
{{- $_ := mustMerge $keys (fromJson (include "podium.certificateKeys" (dict "name" "postgres" "values" $values.postgres))) -}}
{{- $_ := mustMerge $keys (fromJson (include "podium.certificateKeys" (dict "name" "nats" "values" $values.nats))) -}}
{{- if include "podium.calls" . -}}
{{- $_ := set $keys "redis" $values.redis.url -}}
{{- with $values.redis.limitsUrls }}{{ $_ := set $keys "redis_limits" . }}{{ end -}}
{{- if $values.redis.passwordSecret.name -}}
{{- $_ := set $keys "redis_password" "file:/etc/podium/redis/password" -}}
{{- end -}}
{{- $_ := mustMerge $keys (fromJson (include "podium.certificateKeys" (dict "name" "redis" "values" $values.redis))) -}}
{{- end -}}
{{- if eq .component "gateway" -}}
{{- $_ := set $keys "listen" "0.0.0.0:8080" -}}
{{- $_ := set $keys "grpc_listen" "0.0.0.0:8081" -}}
{{- $_ := set $keys "metrics_listen" "0.0.0.0:9464" -}}
{{- $_ := set $keys "health_listen" "0.0.0.0:8084" -}}
{{- $_ := set $keys "connection_age_max_ms" 600000 -}}
{{- if include "podium.tlsSecret" .root -}}
{{- $_ := set $keys "tls_certificate" "/etc/podium/tls/tls.crt" -}}
{{- $_ := set $keys "tls_key" "/etc/podium/tls/tls.key" -}}
{{- if or $values.gateway.tls.clientAuthority.secret $values.gateway.tls.clientAuthority.configMap -}}
{{- $_ := set $keys "tls_client_root_certificates" "/etc/podium/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $keys "keys_required" .values.keysRequired -}}
{{- $_ := set $keys "cell" $values.cell.number -}}
{{- if $values.cell.all }}{{ $_ := set $keys "cells" "/etc/podium/cells/cells.toml" }}{{ end -}}
{{- else if eq .component "planner" -}}
{{- $_ := set $keys "listen" "0.0.0.0:8082" -}}
{{- if gt (int (dig "gpu" "count" 0 .values)) 0 }}{{ $_ := set $keys "gpu_layers" "all" }}{{ end -}}
{{- else -}}
{{- $_ := set $keys "listen" "0.0.0.0:8083" -}}
{{- end -}}
{{- $keys = mustMergeOverwrite $keys (deepCopy $values.settings) (deepCopy .values.settings) -}}
{{- include "podium.toml" $keys | trim -}}
{{- end -}}

{{- define "podium.cells" -}}
schema = 1
{{- range .Values.cell.all }}

[[cells]]
number = {{ int .number }}
{{- if hasKey . "weight" }}
weight = {{ int .weight }}
{{- end }}
http = {{ toJson .http }}
grpc = {{ toJson .grpc }}
{{- end }}
{{- with .Values.cell.tenants }}

[tenants]
{{- range $tenant, $cell := . }}
{{ toJson $tenant }} = {{ int $cell }}
{{- end }}
{{- end }}
{{- end -}}
