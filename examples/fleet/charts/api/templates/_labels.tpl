{{- define "api.labels" -}}
app: {{ .Release.Name }}
{{- end }}
