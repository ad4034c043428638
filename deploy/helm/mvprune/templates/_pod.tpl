{{/* The pod of the server, for the Deployment and the StatefulSet. */}}
{{- define "mvprune.pod" -}}
metadata:
  labels:
    {{- include "mvprune.labels" (list . "server") | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include (print $.Template.BasePath "/config.yaml") . | sha256sum }}
    checksum/secrets: {{ include "mvprune.secretsChecksum" . }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "mvprune.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false # Kubernetes would add MVPRUNE_… variables, which the server reads as settings
  securityContext: {{- include "mvprune.podSecurity" . | nindent 4 }}
  # After SIGTERM: the drain, three seconds for calls in progress, and the rest as a reserve.
  terminationGracePeriodSeconds: {{ add 50 (ceil .Values.drainSeconds) }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "mvprune.selector" (list . "server") | nindent 10 }}
  containers:
    - name: server
      image: {{ include "mvprune.image" (list . .Values.image) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [mvprune-server]
      securityContext: {{- include "mvprune.containerSecurity" . | nindent 8 }}
      envFrom:
        - configMapRef: {name: {{ include "mvprune.fullname" . }}}
      env:
        - {name: HOME, value: /var/lib/mvprune}
        {{- if include "mvprune.isPostgres" . }}
        - {name: MVPRUNE_DATABASE_URL_FILE, value: /etc/mvprune/secrets/database-url}
        {{- end }}
        {{- include "mvprune.storeEnv" . | nindent 8 }}
        {{- if or .Values.rayCluster.enabled .Values.secrets.rayToken.existingSecret }}
        - {name: RAY_AUTH_TOKEN_PATH, value: /etc/mvprune/secrets/ray-token}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: clients, containerPort: 7070}
        - {name: workers, containerPort: 7071}
        {{- if .Values.service.http }}
        - {name: http, containerPort: 7080}
        {{- end }}
        - {name: metrics, containerPort: 9464}
      {{- include "mvprune.probes" . | nindent 6 }}
      {{- with .Values.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: home, mountPath: /var/lib/mvprune}
        - {name: tmp, mountPath: /tmp}
        - {name: secrets, mountPath: /etc/mvprune/secrets, readOnly: true}
        {{- include "mvprune.storeMount" . | nindent 8 }}
        {{- if .Values.tls.existingSecret }}
        - {name: tls, mountPath: /etc/mvprune/tls, readOnly: true}
        - {name: ca, mountPath: /etc/mvprune/ca, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if include "mvprune.isPostgres" . }}
    - {name: home, emptyDir: {}}
    {{- end }}
    - {name: tmp, emptyDir: {}}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          - secret:
              name: {{ include "mvprune.secret" (list . "serverKey") | quote }}
              items: [{key: {{ include "mvprune.secretKey" (list . "serverKey") | quote }}, path: server-key}]
          - secret:
              name: {{ include "mvprune.secret" (list . "operatorToken") | quote }}
              items: [{key: {{ include "mvprune.secretKey" (list . "operatorToken") | quote }}, path: operator-token}]
          {{- if include "mvprune.isPostgres" . }}
          {{- include "mvprune.databaseSource" . | nindent 10 }}
          {{- end }}
          {{- if or .Values.rayCluster.enabled .Values.secrets.rayToken.existingSecret }}
          - secret:
              name: {{ include "mvprune.secret" (list . "rayToken") | quote }}
              items: [{key: auth_token, path: ray-token}]
          {{- end }}
    {{- include "mvprune.storeVolume" . | nindent 4 }}
    {{- with .Values.tls.existingSecret }}
    - {name: tls, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
    - {name: ca, secret: {secretName: {{ . | quote }}, items: [{key: ca.crt, path: ca.crt}]}}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/*
No probe that restarts the pod asks for the database. Kubernetes' gRPC probes cannot use TLS: with TLS they are replaced
by a TCP probe, and by the image's health check.
*/}}
{{- define "mvprune.probes" -}}
{{- $alive := dict "grpc" (dict "port" 7070 "service" "liveness") -}}
{{- $ready := dict "grpc" (dict "port" 7070) -}}
{{- if .Values.tls.existingSecret -}}
{{- $alive = dict "tcpSocket" (dict "port" "clients") -}}
{{- $ready = dict "exec" (dict "command" (list "python" "-m" "mvprune_service.probe")) -}}
{{- end -}}
startupProbe:
  {{- toYaml $alive | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- toYaml $alive | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- toYaml $ready | nindent 2 }}
  periodSeconds: {{ ternary 10 5 (empty .Values.tls.existingSecret | not) }}
  timeoutSeconds: {{ ternary 8 3 (empty .Values.tls.existingSecret | not) }}
  failureThreshold: 2
{{- end -}}
