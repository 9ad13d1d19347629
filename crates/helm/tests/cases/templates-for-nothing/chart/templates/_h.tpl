{{ define "h" }}[{{ . }}|{{ .a.b }}|{{ with . }}with{{ else }}else{{ end }}|{{ kindOf . }}]{{ end }}
