{{- define "highwater.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "highwater.labels" -}}
app.kubernetes.io/name: highwater
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "highwater.scheme" -}}
{{- if .Values.http.tls.secretName }}https{{ else }}http{{ end -}}
{{- end -}}

{{- /* What would start and then not work is refused here. */ -}}
{{- define "highwater.check" -}}
{{- $most := ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- if and (gt $most 1) (not .Values.log) -}}
{{- fail "several nodes need a cluster: set `log` to kafka://host:port, or replicas to 1" -}}
{{- end -}}
{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.cluster.sessionSeconds) -}}
{{- fail "terminationGracePeriodSeconds must be longer than cluster.sessionSeconds, or a drain is cut short" -}}
{{- end -}}
{{- if not .Values.keys -}}
{{- fail "a node that listens outside of its pod needs keys" -}}
{{- end -}}
{{- end -}}

{{- define "highwater.settings" -}}
data = "/data"
{{- if .Values.log }}
log = {{ .Values.log | quote }}
{{- end }}
{{ .Values.settings }}
{{- range .Values.keys }}

[[keys]]
name = {{ .name | quote }}
secret_file = "/etc/highwater/keys/{{ .name }}"
rights = {{ .rights | toJson }}
{{- end }}
{{- end -}}
