//! The real helm, run as a user would.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use helm::Dialect;
use serde_json::Value as Json;
use testbed::reference::{self, Tool};
use testbed::{Cluster, TemporaryNamespace};

pub struct RealHelm {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    /// Its home, and the folder that it finds charts in.
    folder: tempfile::TempDir,
}

impl RealHelm {
    pub async fn new(cluster: &Cluster, namespace: &TemporaryNamespace, dialect: Dialect) -> Result<Self> {
        let tool = match dialect {
            Dialect::Helm4 => Tool::Helm4,
            Dialect::Helm3 => Tool::Helm3,
        };
        let binary = tokio::task::spawn_blocking(move || reference::binary(tool, "helm")).await??;
        let folder = tempfile::tempdir()?;
        crate::shop::write(&folder.path().join("shop"))?;
        for revision in [1, 2] {
            let values = serde_json::to_vec(crate::shop::values(revision).as_map())?;
            std::fs::write(folder.path().join(format!("values-{revision}.json")), values)?;
        }
        Ok(Self {
            binary,
            kubeconfig: cluster.kubeconfig_path().to_owned(),
            namespace: namespace.name().to_owned(),
            folder,
        })
    }

    /// What it prints; failing is an error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig);
        // The embedded server lives in this process: it has to be able to answer meanwhile.
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        if !output.status.success() {
            bail!("helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    pub async fn json(&self, arguments: &[&str]) -> Result<Json> {
        let text = self.run(&[arguments, &["--output", "json"]].concat()).await?;
        serde_json::from_str(&text).with_context(|| format!("helm {}: {text}", arguments.join(" ")))
    }

    /// Installs or upgrades the shop with the values of this revision.
    pub async fn apply(&self, verb: &str, revision: i64) -> Result<String> {
        self.run(&[verb, "shop", "shop", "--values", &format!("values-{revision}.json")]).await
    }

    /// Revision, status and description of each entry of the history.
    pub async fn history(&self) -> Result<Vec<(i64, String, String)>> {
        let history = self.json(&["history", "shop"]).await?;
        let entries = history.as_array().context("a list")?;
        let text = |entry: &Json, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Ok(entries
            .iter()
            .map(|entry| {
                (
                    entry["revision"].as_i64().unwrap_or_default(),
                    text(entry, "status"),
                    text(entry, "description"),
                )
            })
            .collect())
    }
}
