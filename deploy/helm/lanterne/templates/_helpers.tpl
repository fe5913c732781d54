{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "lanterne.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: with "-collector" and the 11 of its revision label that stays below 63. */}}
{{- define "lanterne.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "lanterne.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Call with (dict "root" $ "component" "agent"). Never changes over the life of a release. */}}
{{- define "lanterne.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lanterne.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "lanterne.labels" -}}
{{ include "lanterne.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lanterne
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Call with (dict "root" $ "image" .Values.agent.image). */}}
{{- define "lanterne.image" -}}
{{- $repository := .image.repository -}}
{{- with .image.registry -}}
{{- $repository = printf "%s/%s" . $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "lanterne.secretName" -}}
{{- default (printf "%s-token" (include "lanterne.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "lanterne.collectorUrl" -}}
{{- if .Values.agent.collectorUrl -}}
{{- .Values.agent.collectorUrl -}}
{{- else if .Values.collector.enabled -}}
{{- printf "%s://%s-collector.%s.svc:4317" (ternary "https" "http" .Values.tls.enabled) (include "lanterne.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{- define "lanterne.seccompProfile" -}}
type: {{ .type }}
{{- if eq .type "Localhost" }}
localhostProfile: {{ required "agent.seccompProfile.localhostProfile is needed for the type Localhost" .localhostProfile }}
{{- end }}
{{- end -}}

{{/* The configuration files: what the chart decides, over what the user adds. */}}
{{- define "lanterne.agentConfig" -}}
{{- $c := dict "collector" (include "lanterne.collectorUrl" .) "cluster" .Values.clusterName "window" .Values.window
        "db" "/var/lib/lanterne/lanterne.db" -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $c "token_file" "/etc/lanterne/token/token" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- if .Values.tls.caKey -}}
{{- $_ := set $c "collector_ca_file" "/etc/lanterne/tls-ca/ca.crt" -}}
{{- end -}}
{{- if .Values.tls.agentSecret -}}
{{- $_ := set $c "collector_cert_file" "/etc/lanterne/tls/tls.crt" -}}
{{- $_ := set $c "collector_key_file" "/etc/lanterne/tls/tls.key" -}}
{{- end -}}
{{- with .Values.tls.serverName -}}
{{- $_ := set $c "collector_server_name" . -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.agent.config) $c) -}}
{{- end -}}

{{- define "lanterne.collectorTls" -}}
cert_file: /etc/lanterne/tls/tls.crt
key_file: /etc/lanterne/tls/tls.key
required: {{ .Values.tls.required }}
{{- if ne .Values.tls.clientCertificates "off" }}
client_ca_file: /etc/lanterne/tls/{{ required "tls.caKey is needed for tls.clientCertificates" .Values.tls.caKey }}
require_client_cert: {{ .Values.tls.clientCertificates | quote }}
{{- with .Values.tls.allowSan }}
allow_san:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "lanterne.tlsSecret" -}}
{{- required "tls.existingSecret is needed for tls.enabled" .Values.tls.existingSecret -}}
{{- end -}}

{{/* The authority alone: agents and readers are not handed the collector's key. */}}
{{- define "lanterne.caVolume" -}}
- name: tls-ca
  secret:
    secretName: {{ include "lanterne.tlsSecret" . }}
    defaultMode: 0440
    items:
      - key: {{ .Values.tls.caKey }}
        path: ca.crt
{{- end -}}

{{- define "lanterne.collectorConfig" -}}
{{- $bind := .Values.collector.bindAddress -}}
{{- $c := dict "otlp" (dict "listen" (list (printf "%s:4317" $bind) (printf "%s:4318" $bind)))
        "api" (dict "listen" (printf "%s:8420" $bind)) "db" "/var/lib/lanterne/collector.db"
        "window" .Values.window -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $c "token_file" "/etc/lanterne/token/token" -}}
{{- else -}}
{{- $_ := set $c "insecure_no_auth" true -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $c "tls" (include "lanterne.collectorTls" . | fromYaml) -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.collector.config) $c) -}}
{{- end -}}
