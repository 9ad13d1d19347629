//! A chart as `helm package` writes it, perhaps with another version, other defaults or more subcharts than it was loaded with.
//!
//! The same chart gives the same bytes: where Helm would write the time of packaging, the time the file came with is kept, and
//! a file without one is dated 1970.

use bytes::Bytes;
use flate2::{Compression, GzBuilder};

use super::{ApiVersion, Chart, File};
use crate::Values;

/// What Helm puts into the head of every archive it makes.
const MARK: &[u8] = b"+aHR0cHM6Ly95b3V0dS5iZS96OVV6MWljandyTQo=";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    #[error("chart validation: validation: {0}")]
    Invalid(String),
    #[error("invalid chart name {}", crate::quote::go_quote(.0))]
    Name(String),
    #[error("invalid JSON in values.schema.json")]
    Schema,
    #[error("failed to locate values file: values.yaml")]
    NoValuesFile,
    #[error("{0}")]
    Write(String),
}

impl Chart {
    /// The archive.
    pub fn package(&self) -> Result<Vec<u8>, PackageError> {
        self.metadata.clone().check().map_err(PackageError::Invalid)?;
        let gzip = GzBuilder::new().extra(MARK).comment("Helm").write(Vec::new(), Compression::default());
        let mut tar = tar::Builder::new(gzip);
        self.write_to(&mut tar, "")?;
        let failed = |error: std::io::Error| PackageError::Write(error.to_string());
        tar.into_inner().map_err(failed)?.finish().map_err(failed)
    }

    /// Makes `values` the chart's defaults; says whether that changed anything.
    pub fn replace_values(&mut self, values: &Values) -> Result<bool, PackageError> {
        let text = match values.is_empty() {
            true => String::new(),
            false => yaml::to_yaml_sigs(&serde_json::Value::Object(values.as_map().clone()))
                .map_err(|error| PackageError::Write(error.to_string()))?,
        };
        let file = self.values_file.as_mut().ok_or(PackageError::NoValuesFile)?;
        if file.data == text.as_bytes() {
            return Ok(false);
        }
        file.data = Bytes::from(text);
        self.values = Some(values.as_map().clone());
        Ok(true)
    }

    fn write_to(
        &self,
        tar: &mut tar::Builder<impl std::io::Write>,
        prefix: &str,
    ) -> Result<(), PackageError> {
        if self.name().contains('/') || self.name().is_empty() {
            return Err(PackageError::Name(self.name().to_owned()));
        }
        let base = format!("{prefix}{}", self.name());
        add(tar, &base, &self.chart_yaml()?)?;
        if let (Some(lock), ApiVersion::V2) = (&self.lock, self.metadata.api()) {
            let text = yaml::to_yaml_sigs(lock).map_err(|error| PackageError::Write(error.to_string()))?;
            add(tar, &base, &generated("Chart.lock", text))?;
        }
        if let Some(values) = &self.values_file {
            add(tar, &base, values)?;
        }
        if let Some(schema) = &self.schema {
            serde_json::from_slice::<serde::de::IgnoredAny>(schema).map_err(|_| PackageError::Schema)?;
            let modified = self.schema_modified;
            add(tar, &base, &File { name: "values.schema.json".to_owned(), data: schema.clone(), modified })?;
        }
        for file in self.templates.iter().chain(&self.files) {
            add(tar, &base, file)?;
        }
        let below = format!("{base}/charts/");
        self.subcharts.iter().try_for_each(|subchart| subchart.write_to(tar, &below))
    }

    fn chart_yaml(&self) -> Result<File, PackageError> {
        let mut metadata = self.metadata.clone();
        // The old format keeps them in requirements.yaml.
        if metadata.api() == ApiVersion::V1 {
            metadata.dependencies = None;
        }
        let text = yaml::to_yaml_sigs(&crate::release::metadata_record(&metadata))
            .map_err(|error| PackageError::Write(error.to_string()))?;
        Ok(File { modified: self.modified, ..generated("Chart.yaml", text) })
    }
}

fn generated(name: &str, text: String) -> File {
    File { name: name.to_owned(), data: Bytes::from(text), modified: None }
}

fn add(tar: &mut tar::Builder<impl std::io::Write>, base: &str, file: &File) -> Result<(), PackageError> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(file.data.len() as u64);
    let seconds = file.modified.map_or(0, |time| time.as_second());
    header.set_mtime(u64::try_from(seconds).unwrap_or(0));
    tar.append_data(&mut header, format!("{base}/{}", file.name), file.data.as_ref())
        .map_err(|error| PackageError::Write(format!("{}: {error}", file.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Limits};

    fn chart(files: &[(&str, &str)]) -> Chart {
        let files = files.iter().map(|(name, text)| generated(name, (*text).to_owned())).collect();
        Chart::from_files(files, Limits::default(), Dialect::Helm4).unwrap()
    }

    #[test]
    fn a_packaged_chart_loads_again_with_all_it_had() {
        let mut chart = chart(&[
            ("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\nappVersion: 1.10\n"),
            ("values.yaml", "# kept\na: 1\n"),
            ("templates/x.yaml", "x: {{ .Values.a }}\n"),
            ("README.md", "read me\n"),
            ("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 0.1.0\n"),
            ("charts/sub/values.yaml", "b: 2\n"),
        ]);
        chart.metadata.version = "1.0.0+7".to_owned();
        let bytes = chart.package().unwrap();
        assert_eq!(bytes, chart.package().unwrap());
        let again = Chart::from_archive(&bytes, Limits::default(), Dialect::Helm4).unwrap();
        assert_eq!(again.metadata.version, "1.0.0+7");
        assert_eq!(again.metadata.app_version, "1.1");
        assert_eq!(again.values_file.as_ref().map(|file| file.data.as_ref()), Some(&b"# kept\na: 1\n"[..]));
        assert_eq!(again.templates.len(), 1);
        assert_eq!(again.files[0].name, "README.md");
        assert_eq!(again.subcharts[0].values_file.as_ref().map(|f| f.data.as_ref()), Some(&b"b: 2\n"[..]));
    }

    #[test]
    fn defaults_are_replaced_only_where_there_are_some() {
        let mut with = chart(&[
            ("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n"),
            ("values.yaml", "a: 1\n"),
        ]);
        let values = Values::from_yaml(b"a: 1\n", Dialect::Helm4).unwrap();
        assert_eq!(with.replace_values(&values), Ok(false));
        let values = Values::from_yaml(b"a: 2\nb: x\n", Dialect::Helm4).unwrap();
        assert_eq!(with.replace_values(&values), Ok(true));
        assert_eq!(with.values_file.as_ref().map(|file| file.data.as_ref()), Some(&b"a: 2\nb: x\n"[..]));
        let mut without = chart(&[("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")]);
        assert_eq!(without.replace_values(&values), Err(PackageError::NoValuesFile));
    }
}
