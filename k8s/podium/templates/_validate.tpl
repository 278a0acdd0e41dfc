{{/* Values that the schema cannot judge. All problems are reported at once. */}}
{{- define "podium.validate" -}}
{{- $v := .Values -}}
{{- $problems := concat
  (include "podium.problemsOfServers" . | fromJsonArray)
  (include "podium.problemsOfFiles" . | fromJsonArray)
  (include "podium.problemsOfConductors" . | fromJsonArray)
  (include "podium.problemsOfScaling" . | fromJsonArray)
-}}
{{- if $problems -}}
{{- fail (printf "the values are invalid:\n  - %s" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}

{{- define "podium.problemsOfServers" -}}
{{- $v := .Values -}}
{{- $problems := list -}}
{{- if not $v.image.repository -}}
{{- $problems = append $problems "image.repository is missing: build an image with deploy/Dockerfile, push it, and set REGISTRY/NAME" -}}
{{- end -}}
{{- range $name, $url := dict "postgres" $v.postgres.url "nats" $v.nats.url "redis" $v.redis.url -}}
{{- if not $url -}}
{{- $problems = append $problems (printf "%s.url is missing: set the address of a server of yours; the chart installs none" $name) -}}
{{- end -}}
{{- range splitList "," $url -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" . -}}
{{- $problems = append $problems (printf "%s.url holds a password: put it into a Secret and name that (passwordSecret; for NATS secret)" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name := tuple "postgres" "nats" "redis" -}}
{{- $server := index $v $name -}}
{{- if and $server.authority.secret $server.authority.configMap -}}
{{- $problems = append $problems (printf "%s.authority names a Secret and a ConfigMap: keep one" $name) -}}
{{- end -}}
{{- if and $server.clientCertificate.secret $server.clientCertificate.certManager -}}
{{- $problems = append $problems (printf "%s.clientCertificate has a secret and certManager: keep one" $name) -}}
{{- end -}}
{{- end -}}
{{- $keys := compact (list $v.nats.secret.passwordKey $v.nats.secret.tokenKey $v.nats.secret.nkeyKey $v.nats.secret.credentialsKey) -}}
{{- if gt (len $keys) 1 -}}
{{- $problems = append $problems "nats.secret has several keys: keep one of passwordKey, tokenKey, nkeyKey, credentialsKey" -}}
{{- else if ne (empty $keys) (empty $v.nats.secret.name) -}}
{{- $problems = append $problems "nats.secret needs both: a name, and one of passwordKey, tokenKey, nkeyKey, credentialsKey" -}}
{{- end -}}
{{- $tls := $v.gateway.tls -}}
{{- if and $tls.secret $tls.certManager -}}
{{- $problems = append $problems "gateway.tls has a secret and certManager: keep one" -}}
{{- end -}}
{{- if and $tls.clientAuthority.secret $tls.clientAuthority.configMap -}}
{{- $problems = append $problems "gateway.tls.clientAuthority names a Secret and a ConfigMap: keep one" -}}
{{- end -}}
{{- if and (or $tls.clientAuthority.secret $tls.clientAuthority.configMap) (not $tls.secret) (not $tls.certManager) -}}
{{- $problems = append $problems "gateway.tls.clientAuthority needs a certificate of the gateways: set gateway.tls.secret or gateway.tls.certManager" -}}
{{- end -}}
{{- if and (eq $v.migrations.mode "hook") $v.postgres.clientCertificate.certManager -}}
{{- $problems = append $problems "migrations.mode is hook, but hooks run before cert-manager has made the certificate of postgres.clientCertificate: set migrations.mode to job, or name a Secret that exists" -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "podium.problemsOfFiles" -}}
{{- $v := .Values -}}
{{- $problems := list -}}
{{- if eq (empty $v.pool.content) (empty $v.pool.existingConfigMap) -}}
{{- $problems = append $problems "pool needs one of content (--set-file pool.content=mine.toml) and existingConfigMap" -}}
{{- end -}}
{{- if and $v.vendors.env (not $v.vendors.existingSecret) -}}
{{- $problems = append $problems "vendors.env needs vendors.existingSecret: the Secret with the vendors' keys" -}}
{{- end -}}
{{- if $v.cell.all -}}
{{- $numbers := list -}}
{{- range $v.cell.all }}{{ $numbers = append $numbers (int .number) }}{{ end -}}
{{- if not (has (int $v.cell.number) $numbers) -}}
{{- $problems = append $problems (printf "cell.all lacks cell %d, the one of this release (cell.number): list all cells, the same list in all releases" (int $v.cell.number)) -}}
{{- end -}}
{{- if ne (len $numbers) (len (uniq $numbers)) -}}
{{- $problems = append $problems "cell.all lists a number twice: each cell has its own" -}}
{{- end -}}
{{- range $tenant, $cell := $v.cell.tenants -}}
{{- if not (has (int $cell) $numbers) -}}
{{- $problems = append $problems (printf "cell.tenants.%s is cell %d, which cell.all lacks" $tenant (int $cell)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.alerts.enabled (not (.Files.Get "files/alerts.yaml")) -}}
{{- $problems = append $problems "alerts.enabled is true, but this chart was packaged without files/alerts.yaml: set it to false" -}}
{{- end -}}
{{- if and $v.dashboards.enabled (not (.Files.Glob "files/dashboards/*.json")) -}}
{{- $problems = append $problems "dashboards.enabled is true, but this chart was packaged without files/dashboards: set it to false" -}}
{{- end -}}
{{- if and $v.gateway.ingress.enabled (not $v.gateway.ingress.host) -}}
{{- $problems = append $problems "gateway.ingress.host is missing: set the host name of the HTTP API" -}}
{{- end -}}
{{- if and $v.gateway.ingress.enabled $v.gateway.ingress.grpc.enabled (not $v.gateway.ingress.grpc.host) -}}
{{- $problems = append $problems "gateway.ingress.grpc.host is missing: gRPC needs a host name of its own" -}}
{{- end -}}
{{- if and $v.gateway.route.enabled (not $v.gateway.route.parentRefs) -}}
{{- $problems = append $problems "gateway.route.parentRefs is missing: name the Gateway, such as [{name: public, namespace: gateways}]" -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "podium.problemsOfConductors" -}}
{{- $v := .Values -}}
{{- $problems := list -}}
{{- if not $v.conductor.use -}}
{{- $problems = append $problems "conductor.use is missing: set what plans, such as worker:WORKER, bundle:NAME or direct" -}}
{{- end -}}
{{- range $name := splitList "," (include "podium.bundlesUsed" .) -}}
{{- if $name -}}
{{- $bundle := get $v.bundles $name -}}
{{- if not $bundle -}}
{{- $problems = append $problems (printf "conductor names bundle:%s, which `bundles` lacks: add bundles.%s with its manifest and a source" $name $name) -}}
{{- else -}}
{{- $sources := compact (list $bundle.image $bundle.claim $bundle.download) -}}
{{- if not $bundle.manifest -}}
{{- $problems = append $problems (printf "bundles.%s.manifest is missing: --set-file bundles.%s.manifest=conductor.toml" $name $name) -}}
{{- end -}}
{{- if ne (len $sources) 1 -}}
{{- $problems = append $problems (printf "bundles.%s has %d sources: give it one of image, claim, download" $name (len $sources)) -}}
{{- end -}}
{{- if and $bundle.image (semverCompare "<1.35.0-0" (include "podium.kubeVersion" $)) -}}
{{- $problems = append $problems (printf "bundles.%s.image needs image volumes, which Kubernetes has by default from 1.35 on; this is %s: use claim or download" $name (include "podium.kubeVersion" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $v.planner.pools -}}
{{- $problems = append $problems "planner.pools is empty: runs would wait for a plan for ever; give it a pool" -}}
{{- end -}}
{{- range $pool, $values := $v.planner.pools -}}
{{- $values := include "podium.plannerPool" (dict "root" $ "pool" $values) | fromJson -}}
{{- if and (gt (int (dig "gpu" "count" 0 $values)) 0) (not (dig "image" "repository" "" $values)) -}}
{{- $problems = append $problems (printf "planner.pools.%s has a GPU, but not the image for it: build deploy/Dockerfile.cuda and set planner.pools.%s.image.repository" $pool $pool) -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* The most pods that a workload has at once: takes its values. */}}
{{- define "podium.podsMax" -}}
{{- $pods := ternary .replicas .autoscaling.max (eq .autoscaling.kind "none") -}}
{{- add (int $pods) 1 -}}
{{- end -}}

{{/* The most connections to Postgres: each process holds some, and one more as it starts. */}}
{{- define "podium.connectionsMax" -}}
{{- $workloads := list .Values.gateway .Values.executor -}}
{{- range $pool, $values := .Values.planner.pools -}}
{{- $workloads = append $workloads (include "podium.plannerPool" (dict "root" $ "pool" $values) | fromJson) -}}
{{- end -}}
{{- $sum := 3 -}}
{{- range $workloads -}}
{{- $settings := mustMergeOverwrite (deepCopy $.Values.settings) .settings -}}
{{- $sum = add $sum (mul (include "podium.podsMax" . | int) (int (default 8 $settings.postgres_connections))) 1 -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "podium.problemsOfScaling" -}}
{{- $v := .Values -}}
{{- $problems := list -}}
{{- $workloads := dict "gateway" $v.gateway "executor" $v.executor -}}
{{- range $pool, $values := $v.planner.pools -}}
{{- $_ := set $workloads (printf "planner.pools.%s" $pool) (include "podium.plannerPool" (dict "root" $ "pool" $values) | fromJson) -}}
{{- end -}}
{{- range $name, $values := $workloads -}}
{{- $scaling := $values.autoscaling -}}
{{- if gt (int $scaling.min) (int $scaling.max) -}}
{{- $problems = append $problems (printf "%s.autoscaling: min (%d) is above max (%d)" $name (int $scaling.min) (int $scaling.max)) -}}
{{- end -}}
{{- if and (eq $scaling.kind "none") (not (hasKey $values "replicas")) -}}
{{- $problems = append $problems (printf "%s needs replicas, or autoscaling" $name) -}}
{{- end -}}
{{- if eq $scaling.kind "keda" -}}
{{- if not $v.keda.prometheusAddress -}}
{{- $problems = append $problems (printf "%s.autoscaling.kind is keda, but keda.prometheusAddress is missing: set it, such as http://prometheus.monitoring:9090" $name) -}}
{{- end -}}
{{- if and (eq $name "gateway") (not $scaling.query) -}}
{{- $problems = append $problems "gateway.autoscaling.kind is keda, but gateways have no lanes: use hpa, or give autoscaling.query and threshold" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $connections := include "podium.connectionsMax" . | int -}}
{{- if and (gt (int $v.postgres.maxConnections) 0) (gt $connections (int $v.postgres.maxConnections)) -}}
{{- $problems = append $problems (printf "the release may need %d connections to Postgres, above postgres.maxConnections (%d): raise it in the server, lower settings.postgres_connections or the numbers of pods, or put PgBouncer in between" $connections (int $v.postgres.maxConnections)) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
