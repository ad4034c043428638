{{- define "mvprune.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "mvprune.fullname" -}}
{{- $name := include "mvprune.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which a component is selected. Call with (list $ "component"). */}}
{{- define "mvprune.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "mvprune.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "mvprune.labels" -}}
{{- $root := index . 0 -}}
{{ include "mvprune.selector" . }}
app.kubernetes.io/part-of: mvprune
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name of an image. Call with (list $ image). */}}
{{- define "mvprune.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $image.registry }}{{ . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end -}}
{{- end -}}

{{- define "mvprune.isPostgres" -}}
{{- if .Values.database.existingSecret }}yes{{ end -}}
{{- end -}}

{{- define "mvprune.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{- ternary 2 1 (include "mvprune.isPostgres" . | not | not) -}}
{{- else -}}
{{- int .Values.replicas -}}
{{- end -}}
{{- end -}}

{{- define "mvprune.generated" -}}{{ include "mvprune.fullname" . }}-generated{{- end -}}

{{/* Name of the Secret that has one of .Values.secrets. Call with (list $ "serverKey"). */}}
{{- define "mvprune.secret" -}}
{{- $root := index . 0 -}}
{{- default (include "mvprune.generated" $root) (index $root.Values.secrets (index . 1)).existingSecret -}}
{{- end -}}

{{/* Key within that Secret. A generated Secret has fixed keys. */}}
{{- define "mvprune.secretKey" -}}
{{- $one := index (index . 0).Values.secrets (index . 1) -}}
{{- if $one.existingSecret -}}{{ $one.key }}{{- else -}}{{ dict "serverKey" "server-key" "operatorToken" "operator-token" | dig (index . 1) "" }}{{- end -}}
{{- end -}}

{{- define "mvprune.serviceAccount" -}}{{ include "mvprune.fullname" . }}{{- end -}}
{{- define "mvprune.workersHost" -}}{{ include "mvprune.fullname" . }}-workers.{{ .Release.Namespace }}.svc{{- end -}}

{{- define "mvprune.rayAddress" -}}
{{- if .Values.rayCluster.enabled -}}
http://{{ include "mvprune.fullname" . }}-ray-head-svc.{{ .Release.Namespace }}.svc:8265
{{- else -}}
{{ .Values.ray.address }}
{{- end -}}
{{- end -}}

{{/* Bytes that jobs may reserve on a node of a group: 1 GiB is left to Ray. */}}
{{- define "mvprune.groupMemory" -}}{{ mul (sub (int .memoryGiB) 1) 1073741824 }}{{- end -}}

{{- define "mvprune.nodeTypes" -}}
{{- $types := list -}}
{{- range .Values.rayCluster.workerGroups -}}
{{- $types = append $types (printf "mvprune-%s:%d:%d:%d:%s" .name (int .maxReplicas) (int .cpus) (int .gpus) (include "mvprune.groupMemory" .)) -}}
{{- end -}}
{{- join "," $types -}}
{{- end -}}

{{- define "mvprune.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "mvprune.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Variables with which boto3 finds the store. */}}
{{- define "mvprune.storeEnv" -}}
{{- with .Values.store.endpoint }}
- {name: AWS_ENDPOINT_URL_S3, value: {{ . | quote }}}
{{- end }}
{{- with .Values.store.region }}
- {name: AWS_REGION, value: {{ . | quote }}}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- if .Values.store.credentials.existingSecret }}
- {name: AWS_SHARED_CREDENTIALS_FILE, value: /etc/mvprune/store/credentials}
{{- end }}
{{- end -}}

{{/* The file with the store's keys, as a volume and its mount. Secrets are files: variables show in /proc and dumps. */}}
{{- define "mvprune.storeVolume" -}}
{{- with .Values.store.credentials }}
{{- if .existingSecret }}
- name: store
  secret: {secretName: {{ .existingSecret | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: credentials}]}
{{- end }}
{{- end }}
{{- end -}}
{{- define "mvprune.storeMount" -}}
{{- if .Values.store.credentials.existingSecret }}
- {name: store, mountPath: /etc/mvprune/store, readOnly: true}
{{- end }}
{{- end -}}

{{/* The file with the database's URL, as an item of a projected volume. */}}
{{- define "mvprune.databaseSource" -}}
- secret:
    name: {{ .Values.database.existingSecret | quote }}
    items: [{key: {{ .Values.database.key | quote }}, path: database-url}]
{{- end -}}

{{/* SHA-256 of the content of existing Secrets, so that an upgrade after a change restarts the pods. */}}
{{- define "mvprune.secretsChecksum" -}}
{{- $root := . -}}
{{- $names := list .Values.database.existingSecret .Values.store.credentials.existingSecret .Values.tls.existingSecret .Values.console.issuer.existingSecret -}}
{{- range .Values.secrets }}{{ $names = append $names .existingSecret }}{{ end -}}
{{- $content := list -}}
{{- range $names | compact | uniq -}}
{{- $content = append $content (dict "name" . "data" (dig "data" (dict) (lookup "v1" "Secret" $root.Release.Namespace .))) -}}
{{- end -}}
{{- $content | toJson | sha256sum -}}
{{- end -}}

{{/* Refuses values that do not fit together; the schema cannot say these. */}}
{{- define "mvprune.check" -}}
{{- $replicas := include "mvprune.replicas" . | int -}}
{{- if and (gt $replicas 1) (not (include "mvprune.isPostgres" .)) -}}
{{- fail (printf "replicas must be 0 or 1 with SQLite, got %d; set database.existingSecret for PostgreSQL" $replicas) -}}
{{- end -}}
{{- if and .Values.rayCluster.enabled .Values.ray.address -}}
{{- fail (printf "ray.address must be empty with rayCluster.enabled, got %q; set rayCluster.enabled=false to use a cluster that is there" .Values.ray.address) -}}
{{- end -}}
{{- if not (or .Values.rayCluster.enabled .Values.ray.address) -}}
{{- fail "ray.address must be http://HOST:8265 without rayCluster, got \"\"; name a Ray cluster, or set rayCluster.enabled=true" -}}
{{- end -}}
{{- if and (ne .Values.service.type "ClusterIP") (not .Values.tls.existingSecret) -}}
{{- fail (printf "service.type must be ClusterIP without TLS, got %q; set tls.existingSecret, since tokens would be readable on the network" .Values.service.type) -}}
{{- end -}}
{{- if and .Values.console.enabled (not .Values.console.hostName) -}}
{{- fail "console.hostName must be the name by which browsers call the console, got \"\"; set it to the host of your ingress" -}}
{{- end -}}
{{- with .Values.console.issuer -}}
{{- if ne (empty .url) (empty .clientId) -}}
{{- fail (printf "console.issuer.url and console.issuer.clientId must be given together, got %q and %q" .url .clientId) -}}
{{- end -}}
{{- end -}}
{{- $groups := dict -}}
{{- range .Values.rayCluster.workerGroups -}}
{{- if hasKey $groups .name -}}
{{- fail (printf "rayCluster.workerGroups must have different names, got %q twice" .name) -}}
{{- end -}}
{{- $_ := set $groups .name true -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "minReplicas of the worker group %q must be at most maxReplicas, got %d and %d" .name (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if gt (int .replicas) (int .maxReplicas) -}}
{{- fail (printf "replicas of the worker group %q must be at most maxReplicas, got %d and %d" .name (int .replicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
