//! Hooks and other manifests out of rendered files, in kind order.

use serde::{Deserialize, Serialize};

use super::{Head, KindOrder, split_manifests};
use crate::Dialect;

/// A document that is applied with its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The template it came from: `podinfo/templates/service.yaml`.
    pub path: String,
    pub content: String,
    pub head: Head,
}

/// A document that runs at certain moments of a release's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HookEvent>,
    #[serde(default)]
    pub last_run: HookExecution,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete_policies: Vec<DeletePolicy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_log_policies: Vec<OutputLogPolicy>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(weight: &i64) -> bool {
    *weight == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

impl HookEvent {
    pub fn name(self) -> &'static str {
        match self {
            HookEvent::PreInstall => "pre-install",
            HookEvent::PostInstall => "post-install",
            HookEvent::PreDelete => "pre-delete",
            HookEvent::PostDelete => "post-delete",
            HookEvent::PreUpgrade => "pre-upgrade",
            HookEvent::PostUpgrade => "post-upgrade",
            HookEvent::PreRollback => "pre-rollback",
            HookEvent::PostRollback => "post-rollback",
            HookEvent::Test => "test",
        }
    }

    fn parse(name: &str) -> Option<HookEvent> {
        const ALL: [HookEvent; 9] = [
            HookEvent::PreInstall,
            HookEvent::PostInstall,
            HookEvent::PreDelete,
            HookEvent::PostDelete,
            HookEvent::PreUpgrade,
            HookEvent::PostUpgrade,
            HookEvent::PreRollback,
            HookEvent::PostRollback,
            HookEvent::Test,
        ];
        // Helm 2's name for tests.
        if name == "test-success" {
            return Some(HookEvent::Test);
        }
        ALL.into_iter().find(|event| event.name() == name)
    }
}

/// When a hook's object is deleted. Charts may write anything; what is unknown does nothing but is kept in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DeletePolicy {
    HookSucceeded,
    HookFailed,
    BeforeHookCreation,
    Unknown(String),
}

impl From<String> for DeletePolicy {
    fn from(text: String) -> Self {
        match text.as_str() {
            "hook-succeeded" => DeletePolicy::HookSucceeded,
            "hook-failed" => DeletePolicy::HookFailed,
            "before-hook-creation" => DeletePolicy::BeforeHookCreation,
            _ => DeletePolicy::Unknown(text),
        }
    }
}

impl From<DeletePolicy> for String {
    fn from(policy: DeletePolicy) -> Self {
        match policy {
            DeletePolicy::HookSucceeded => "hook-succeeded".to_owned(),
            DeletePolicy::HookFailed => "hook-failed".to_owned(),
            DeletePolicy::BeforeHookCreation => "before-hook-creation".to_owned(),
            DeletePolicy::Unknown(text) => text,
        }
    }
}

/// When a hook's logs are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum OutputLogPolicy {
    HookSucceeded,
    HookFailed,
    Unknown(String),
}

impl From<String> for OutputLogPolicy {
    fn from(text: String) -> Self {
        match text.as_str() {
            "hook-succeeded" => OutputLogPolicy::HookSucceeded,
            "hook-failed" => OutputLogPolicy::HookFailed,
            _ => OutputLogPolicy::Unknown(text),
        }
    }
}

impl From<OutputLogPolicy> for String {
    fn from(policy: OutputLogPolicy) -> Self {
        match policy {
            OutputLogPolicy::HookSucceeded => "hook-succeeded".to_owned(),
            OutputLogPolicy::HookFailed => "hook-failed".to_owned(),
            OutputLogPolicy::Unknown(text) => text,
        }
    }
}

/// What became of a hook's last run. Times are RFC 3339, empty when it never ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookExecution {
    #[serde(
        default,
        deserialize_with = "crate::release::text_or_null",
        skip_serializing_if = "String::is_empty"
    )]
    pub started_at: String,
    #[serde(
        default,
        deserialize_with = "crate::release::text_or_null",
        skip_serializing_if = "String::is_empty"
    )]
    pub completed_at: String,
    #[serde(default)]
    pub phase: HookPhase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookPhase {
    /// Never run.
    #[default]
    #[serde(rename = "")]
    None,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// What rendered files hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    pub hooks: Vec<Hook>,
    pub manifests: Vec<Manifest>,
}

/// Splits files (by path) into documents, and those into hooks and manifests, each in kind order. Within a kind the order of paths
/// and of documents stays.
pub fn sort_manifests<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    order: KindOrder,
    dialect: Dialect,
    warnings: &mut Vec<String>,
) -> Result<Sorted, String> {
    let mut files: Vec<(&str, &str)> = files.into_iter().collect();
    files.sort_by_key(|(path, _)| *path);
    let mut sorted = Sorted::default();
    for (path, content) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') || content.trim().is_empty() {
            continue;
        }
        for document in split_manifests(content, dialect) {
            let head = Head::parse(document, dialect)
                .map_err(|cause| format!("YAML parse error on {path}: {cause}"))?;
            sorted.add(path, document, head, warnings);
        }
    }
    sorted.hooks.sort_by(|a, b| order.position(&a.kind, dialect).cmp(&order.position(&b.kind, dialect)));
    sorted
        .manifests
        .sort_by(|a, b| order.position(&a.head.kind, dialect).cmp(&order.position(&b.head.kind, dialect)));
    Ok(sorted)
}

impl Sorted {
    fn add(&mut self, path: &str, document: &str, head: Head, warnings: &mut Vec<String>) {
        let annotations = head.annotations.as_ref();
        let Some(events) = annotations.and_then(|a| a.get("helm.sh/hook")) else {
            self.manifests.push(Manifest { path: path.to_owned(), content: document.to_owned(), head });
            return;
        };
        let parsed: Option<Vec<HookEvent>> = words(events).map(|event| HookEvent::parse(&event)).collect();
        let Some(events) = parsed else {
            // Helm drops the whole object when one event is unknown.
            warnings.push(format!("info: skipping unknown hook: {}", crate::quote::go_quote(events)));
            return;
        };
        let list = |name: &str| {
            annotations
                .and_then(|a| a.get(name))
                .map(|text| words(text).collect::<Vec<_>>())
                .unwrap_or_default()
        };
        let weight =
            annotations.and_then(|a| a.get("helm.sh/hook-weight")).and_then(|w| w.parse().ok()).unwrap_or(0);
        self.hooks.push(Hook {
            events,
            last_run: HookExecution::default(),
            weight,
            delete_policies: list("helm.sh/hook-delete-policy").into_iter().map(DeletePolicy::from).collect(),
            output_log_policies: list("helm.sh/hook-output-log-policy")
                .into_iter()
                .map(OutputLogPolicy::from)
                .collect(),
            name: head.name,
            kind: head.kind,
            path: path.to_owned(),
            manifest: document.to_owned(),
        });
    }
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(',').map(|word| word.trim().to_lowercase())
}
