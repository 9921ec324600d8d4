{{- define "fedmq.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end }}
{{- end }}

{{- define "fedmq.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fedmq.labels" -}}
{{ include "fedmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
fedmq/party: {{ .Values.party }}
{{- end }}

{{- define "fedmq.brokerHost" -}}
{{- if .Values.broker.host }}{{ .Values.broker.host }}
{{- else if .Values.rabbitmq.enabled }}{{ include "fedmq.name" . }}-broker.{{ .Release.Namespace }}.svc
{{- else }}{{ fail "broker.host: which host is the broker? Or make one with rabbitmq.enabled" }}{{ end }}
{{- end }}

{{- /* party.toml: what follows from the other values, then the party's own sections. */ -}}
{{- define "fedmq.partyFile" -}}
party = {{ .Values.party | quote }}
federation = "/etc/fedmq/federation.toml"
keys = "/etc/fedmq/keys.json"
state = "/var/lib/fedmq/state"
# The pod starts while the broker is out of reach, and goes on trying.
wait_for_broker = true
{{- if .Values.broker.urlKey }}
# FEDMQ_BROKER, out of the Secret, has the password.
broker = {{ printf "amqps://%s/" (include "fedmq.brokerHost" .) | quote }}

[tls]
ca = "/etc/fedmq/ca.pem"
{{- else }}
broker = {{ printf "amqps://%s@%s:%v/" .Values.party (include "fedmq.brokerHost" .) .Values.broker.port | quote }}

[tls]
ca = "/etc/fedmq/ca.pem"
certificate = "/etc/fedmq/party.pem"
key = "/etc/fedmq/party.key"
{{- end }}
{{- if .Values.http.enabled }}

[http]
host = "0.0.0.0"
port = {{ .Values.http.port }}
tokens = [{{ required "http.token: what do callers show? openssl rand -hex 16" .Values.http.token | quote }}]
{{- if .Values.http.tlsSecret }}
certificate = "/etc/fedmq/http/tls.crt"
key = "/etc/fedmq/http/tls.key"
{{- end }}
{{- with .Values.http.more }}
{{ . }}
{{- end }}
{{- end }}

{{ .Values.files.party }}
{{- end }}
