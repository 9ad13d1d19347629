//! A Helm chart made in a test, packed as `helm package` would.

use anyhow::Result;
use flate2::Compression;
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
