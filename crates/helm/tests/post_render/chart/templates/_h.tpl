{{- define "x" }}y{{ end }}
