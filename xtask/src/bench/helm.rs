//! Inputs for `helm template`: a made chart of any size, and two charts that people install, where the corpus is at hand.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::Input;
use crate::cargo;

pub fn inputs(folder: &Path) -> Result<Vec<Input>> {
    let mut inputs = made(folder)?;
    let Some(shared) = cargo::shared() else {
        println!("skipped: no corpus, so only made charts");
        return Ok(inputs);
    };
    let charts = shared.join("corpus/helm/charts");
    for (chart, arguments) in [
        ("podinfo", vec!["template", "bench", "chart.tgz"]),
        ("kube-prometheus-stack", vec!["template", "bench", "chart.tgz", "--include-crds"]),
    ] {
        let folder = folder.join(chart);
        std::fs::create_dir_all(&folder)?;
        let from = charts.join(chart).join("chart.tgz");
        std::fs::copy(&from, folder.join("chart.tgz")).with_context(|| format!("copy {}", from.display()))?;
        inputs.push(Input { name: format!("helm template, {chart}"), folder, arguments });
    }
    Ok(inputs)
}

/// A chart in the usual shape, rendered for 1, 100 and 1,000 applications.
fn made(folder: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for apps in [1, 100, 1000] {
        let folder = folder.join(apps.to_string());
        std::fs::create_dir_all(folder.join("chart/templates"))?;
        let write = |name: &str, text: &str| std::fs::write(folder.join("chart").join(name), text);
        write("Chart.yaml", "apiVersion: v2\nname: fleet\nversion: 1.2.3\nappVersion: 4.5.6\n")?;
        write("templates/_names.tpl", NAMES)?;
        write("templates/deployments.yaml", DEPLOYMENTS)?;
        let mut values = String::from(
            "image:\n  repository: example.com/app\n  tag: \"\"\nannotations:\n  owner: payments\napps:\n",
        );
        for app in 0..apps {
            writeln!(
                values,
                "  app-{app}:\n    replicas: {}\n    ports: [8080, 9090]\n    settings:\n      colour: blue\n      size: {app}",
                app % 5 + 1
            )?;
        }
        write("values.yaml", &values)?;
        inputs.push(Input {
            name: format!("helm template, {} objects", apps * 2),
            folder,
            arguments: vec!["template", "fleet", "chart"],
        });
    }
    Ok(inputs)
}

const NAMES: &str = r#"{{- define "fleet.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}
"#;

const DEPLOYMENTS: &str = r#"{{- range $name, $app := .Values.apps }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  labels:
    {{- include "fleet.labels" (dict "name" $name "root" $) | nindent 4 }}
data:
  {{- range $key, $value := $app.settings }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "fleet.labels" (dict "name" $name "root" $) | nindent 4 }}
  annotations:
    checksum/settings: {{ toYaml $app.settings | sha256sum }}
    {{- toYaml $.Values.annotations | nindent 4 }}
spec:
  replicas: {{ $app.replicas | default 1 }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
  template:
    metadata:
      labels:
        {{- include "fleet.labels" (dict "name" $name "root" $) | nindent 8 }}
    spec:
      containers:
        - name: {{ $name }}
          image: "{{ $.Values.image.repository }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}"
          ports:
            {{- range $app.ports }}
            - containerPort: {{ . }}
            {{- end }}
{{- end }}
"#;
