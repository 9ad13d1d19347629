//! A Helm chart made in a test, packed as `helm package` would.

use std::io::Read;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// The files of a chart; `Chart.yaml` comes with its name and version.
#[derive(Clone, Debug)]
pub struct Chart {
    pub name: String,
    pub version: String,
    files: Vec<(String, String)>,
}

impl Chart {
    pub fn new(name: &str, version: &str) -> Self {
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\nappVersion: {version}\n");
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            files: vec![("Chart.yaml".to_owned(), metadata)],
        }
    }

    /// Adds a file, or replaces it.
    pub fn file(mut self, path: &str, content: &str) -> Self {
        self.files.retain(|(known, _)| known != path);
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// A packed chart, unpacked. Files that are no text are left out: charts that tests release have none that matter.
    pub fn from_archive(bytes: &[u8]) -> Result<Self> {
        let mut files = Vec::new();
        let mut archive = tar::Archive::new(GzDecoder::new(bytes));
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            let Some((_, path)) = path.split_once('/') else { continue };
            let path = path.to_owned();
            let mut text = String::new();
            if entry.header().entry_type().is_file() && entry.read_to_string(&mut text).is_ok() {
                files.push((path, text));
            }
        }
        let metadata = files.iter().find(|(path, _)| path == "Chart.yaml").context("no Chart.yaml")?;
        let metadata: serde_json::Value = serde_saphyr::from_str(&metadata.1)?;
        let field = |name: &str| {
            metadata[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in Chart.yaml"))
        };
        Ok(Self { name: field("name")?, version: field("version")?, files })
    }

    /// The same chart as another version.
    pub fn with_version(mut self, version: &str) -> Self {
        for (path, text) in &mut self.files {
            if path == "Chart.yaml" {
                let others = text.lines().filter(|line| !line.starts_with("version:"));
                *text = others
                    .chain([format!("version: {version}").as_str()])
                    .map(|line| format!("{line}\n"))
                    .collect();
            }
        }
        self.version = version.to_owned();
        self
    }

    /// `podinfo-1.2.3.tgz`
    pub fn file_name(&self) -> String {
        format!("{}-{}.tgz", self.name, self.version)
    }

    /// The packed chart. The same files always give the same bytes.
    pub fn package(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (path, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            let path = format!("{}/{path}", self.name);
            archive.append_data(&mut header, path, content.as_bytes())?;
        }
        Ok(archive.into_inner()?.finish()?)
    }
}
