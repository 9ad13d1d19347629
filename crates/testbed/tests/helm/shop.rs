//! A chart with some of everything: as files for the real helm, as a [`Chart`] for us, and rendered by us.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use helm::release::{ApplyMethod, Release};
use helm::{
    Capabilities, Chart, Crd, Dialect, File, KubeVersion, Limits, Lookup, Operation, Options, ReleaseOptions,
    Values,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value as Json, json};
use testbed::Cluster;

const FILES: [(&str, &str); 17] = [
    (
        "Chart.yaml",
        "apiVersion: v2\nname: shop\nversion: 1.4.0\nappVersion: \"2.0\"\ndescription: Sells things\nkeywords: [shop]\n\
         maintainers:\n- name: Ada\n  email: ada@example.com\nannotations:\n  example.com/tier: front\n\
         dependencies:\n- name: till\n  version: 0.1.x\n  repository: \"\"\n  condition: till.enabled\n  alias: desk\n",
    ),
    (
        "values.yaml",
        "greeting: hello\nextra: true\ntill: {enabled: true}\ndesk: {price: 1.50, currency: EUR}\nlimit: 12345678\nglobal: {zone: a}\n",
    ),
    (
        "values.schema.json",
        r#"{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"greeting": {"type": "string"}}}"#,
    ),
    ("motd.txt", "Open from nine to five\n"),
    ("crds/boxes.yaml", BOXES),
    ("charts/till/Chart.yaml", "apiVersion: v2\nname: till\nversion: 0.1.3\n"),
    ("charts/till/values.yaml", "price: 1\ncurrency: USD\n"),
    (
        "charts/till/templates/till.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\ndata:\n  price: {{ .Values.price | quote }}\n  currency: {{ .Values.currency }}\n  zone: {{ .Values.global.zone }}\n",
    ),
    (
        "templates/_names.tpl",
        "{{- define \"shop.labels\" -}}\napp: shop\nrelease: {{ .Release.Name }}\nchart: {{ .Chart.Name }}-{{ .Chart.Version }}\n{{- end }}\n",
    ),
    (
        "templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-settings\n  labels:\n    {{- include \"shop.labels\" . | nindent 4 }}\ndata:\n  greeting: {{ .Values.greeting | quote }}\n  limit: {{ .Values.limit | quote }}\n  motd: {{ .Files.Get \"motd.txt\" | quote }}\n  revision: {{ .Release.Revision | quote }}\n  upgrade: {{ .Release.IsUpgrade | quote }}\n  namespace: {{ (lookup \"v1\" \"Namespace\" \"\" .Release.Namespace).metadata.name }}\n  apps: {{ .Capabilities.APIVersions.Has \"apps/v1\" | quote }}\n  minor: {{ .Capabilities.KubeVersion.Minor | quote }}\n",
    ),
    (
        "templates/password.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-password\ntype: Opaque\ndata:\n  password: {{ b64enc .Values.greeting }}\n",
    ),
    ("templates/deployment.yaml", DEPLOYMENT),
    (
        "templates/service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  clusterIP: None\n  selector:\n    app: shop\n  ports:\n  - name: http\n    port: 80\n    targetPort: http\n{{- if .Values.extra }}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {{ .Release.Name }}-extra\n{{- end }}\n",
    ),
    (
        "templates/role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Release.Namespace }}-reader\nrules:\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get]\n",
    ),
    (
        "templates/box.yaml",
        "apiVersion: shop.example.com/v1\nkind: Box\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  size: {{ len .Values.greeting }}\n  label: {{ .Values.greeting }}\n{{- if .Values.extra }}\n  fragile: true\n{{- end }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-kept\n  annotations:\n    helm.sh/resource-policy: keep\n",
    ),
    (
        "templates/hooks.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-before\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-weight: \"-5\"\ndata:\n  greeting: {{ .Values.greeting }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-after\n  annotations:\n    helm.sh/hook: post-install,post-rollback\n    helm.sh/hook-delete-policy: hook-succeeded\n",
    ),
    ("templates/NOTES.txt", "{{ .Values.greeting }} from {{ .Release.Name }}\n"),
];

const BOXES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: boxes.shop.example.com
spec:
  group: shop.example.com
  names: {kind: Box, listKind: BoxList, plural: boxes, singular: box}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              label: {type: string}
              fragile: {type: boolean}
";

/// No replicas: what the cluster's own controllers do to Pods is not the subject.
const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels:
    {{- include "shop.labels" . | nindent 4 }}
spec:
  replicas: 0
  selector:
    matchLabels:
      app: shop
  template:
    metadata:
      labels:
        app: shop
      annotations:
        checksum/password: {{ include (print $.Template.BasePath "/password.yaml") . | sha256sum }}
    spec:
      containers:
      - name: shop
        image: "example.com/shop:{{ .Chart.AppVersion }}"
        env:
        - name: GREETING
          value: {{ .Values.greeting | quote }}
        {{- if .Values.extra }}
        - name: EXTRA
          value: "yes"
        {{- end }}
        ports:
        - name: http
          containerPort: 8080
"#;

/// What a user sets for the first revision, and for the second.
pub fn values(revision: i64) -> Values {
    let values = match revision {
        1 => json!({"greeting": "good day", "limit": 20_000_000}),
        _ => json!({"greeting": "good night", "extra": false, "desk": {"currency": null}}),
    };
    Values::from_json(values).expect("an object")
}

/// The chart as a folder, for the real helm.
pub fn write(folder: &Path) -> Result<()> {
    for (name, text) in FILES {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().context("files stand in folders")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

fn chart(dialect: Dialect) -> Result<Chart> {
    let file = |(name, text): (&str, &str)| File {
        name: name.to_owned(),
        data: text.as_bytes().to_vec().into(),
        modified: None,
    };
    // In the order in which a folder is read.
    let mut files = FILES;
    files.sort_unstable();
    Ok(Chart::from_files(files.into_iter().map(file).collect(), Limits::default(), dialect)?)
}

/// A cluster that was asked beforehand.
struct Answers(BTreeMap<(String, String), Json>);

impl Lookup for Answers {
    fn lookup(&self, _: &str, kind: &str, _: &str, name: &str) -> Result<Json, String> {
        Ok(self.0.get(&(kind.to_owned(), name.to_owned())).cloned().unwrap_or_else(|| json!({})))
    }
}

struct Machine;

impl gotemplate::Host for Machine {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// The chart rendered by us for a cluster: a release that is not stored yet, and the chart's CRDs.
pub async fn render(
    cluster: &Cluster,
    namespace: &str,
    values: &Values,
    revision: i64,
    dialect: Dialect,
) -> Result<(Release, Vec<Crd>)> {
    let version = cluster.client().apiserver_version().await?;
    let mut capabilities = Capabilities::offline(dialect);
    capabilities.kube_version =
        KubeVersion::reported(&version.git_version, &version.major, &version.minor, dialect);
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let found = serde_json::to_value(namespaces.get(namespace).await?)?;
    let answers = Answers(BTreeMap::from([(("Namespace".to_owned(), namespace.to_owned()), found)]));
    let operation = if revision == 1 { Operation::Install } else { Operation::Upgrade };
    let release =
        ReleaseOptions { name: "shop".to_owned(), namespace: namespace.to_owned(), revision, operation };
    let options = Options { dialect, lookup: Arc::new(answers), ..Options::default() };
    let chart = chart(dialect)?;
    let rendered = helm::render(&chart, values, &release, &capabilities, &Machine, &options)
        .map_err(|error| anyhow!("{error}"))?;
    let method = match dialect {
        Dialect::Helm4 => ApplyMethod::ServerSide,
        Dialect::Helm3 => ApplyMethod::ClientSide,
    };
    let release = Release::new("shop", namespace, &chart, &rendered, values, method, jiff::Timestamp::now());
    Ok((release, rendered.crds))
}
