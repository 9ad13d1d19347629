//! An OCIRepository whose content is on this machine: a chart, or a folder of files.

use std::collections::BTreeMap;
use std::io::{Seek, Write};

use flux_api::revision::Revision;
use flux_api::source::{LayerOperation, OCIReference, OCIRepositorySpec};
use flux_remote::local::Place;
use flux_remote::oci::{self, Digest};

use super::depot::{KeptFiles, LocalChart};
use super::oci_repository::{KIND, OciRepositories, Pulled, highest_of, told};
use super::skeleton::{Failure, Fetched, Job};

impl OciRepositories {
    pub(super) async fn fetch_local(
        &self,
        job: &mut Job<'_, Self>,
        place: Place,
    ) -> Result<Fetched, Failure> {
        let spec = &job.object.spec;
        let asks_for_chart = spec.layer_media_type() == Some(oci::CHART_LAYER);
        let is_chart = place.folder.is_file() || place.folder.join("Chart.yaml").is_file();
        if !asks_for_chart && !is_chart {
            return self.fetch_folder(job, place).await;
        }
        let failed = |message: String| Failure::fetch("OCIArtifactPullFailed", message);
        let charts = job.ctx.depot.as_ref().and_then(|depot| depot.charts(&spec.url));
        let charts = charts.unwrap_or_else(|| Ok(Vec::new())).map_err(failed)?;
        let (tag, chart) = choose(&charts, spec).map_err(failed)?;
        let digest = Digest::of(&chart.archive);
        let revision = format!("{tag}@{digest}");
        let written = || -> std::io::Result<std::fs::File> {
            let mut file = tempfile::tempfile()?;
            file.write_all(&chart.archive)?;
            file.rewind()?;
            Ok(file)
        };
        let layer = written().map_err(|error| Failure::storage(error.to_string()))?;
        self.store(job, Pulled { layer, annotations: BTreeMap::new() }, &digest, &revision).await?;
        Ok(told(job, &revision))
    }

    async fn fetch_folder(&self, job: &mut Job<'_, Self>, place: Place) -> Result<Fetched, Failure> {
        let spec = job.object.spec.clone();
        if spec.layer_operation() == LayerOperation::Copy {
            let problem = "a folder of files stands for it, and the layer is to be copied as it is";
            return Err(Failure::fetch(
                "OCIArtifactLayerOperationFailed",
                format!("{}: {problem}", spec.url),
            ));
        }
        let (storage, key) = (job.ctx.storage.clone(), job.key());
        let stored = tokio::task::spawn_blocking(move || {
            let failed = |error: std::io::Error| {
                let message = format!("{}, in place of {}: {error}", place.folder.display(), spec.url);
                Failure::fetch("OCIArtifactPullFailed", message)
            };
            let files = place.open().map_err(failed)?;
            let digest = files.digest().map_err(failed)?;
            let reference = spec.reference.clone().unwrap_or_default();
            let tag = reference.tag.unwrap_or_else(|| "latest".to_owned());
            let revision = Revision::from(format!("{tag}@sha1:{digest}"));
            let mut contents = KeptFiles::of(&files, spec.ignore.as_deref());
            let name = format!("{digest}.tar.gz");
            storage
                .store(KIND, &key, &name, revision, &mut contents)
                .map_err(|error| Failure::storage(error.to_string()))
        });
        let artifact = stored.await.map_err(|error| Failure::storage(error.to_string()))??;
        let revision = artifact.revision.to_string();
        job.status.artifact = Some(artifact);
        job.status.observed_ignore = job.object.spec.ignore.clone();
        job.status.observed_layer_selector = job.object.spec.layer_selector.clone();
        job.link("latest.tar.gz");
        Ok(told(job, &revision))
    }
}

/// The chart that `spec.ref` means, with its tag. Where a folder has several, the address says which; one that is alone
/// stands for every version, since whoever named it said so.
fn choose<'a>(
    charts: &'a [LocalChart],
    spec: &OCIRepositorySpec,
) -> Result<(String, &'a LocalChart), String> {
    let last = spec.url.rsplit('/').next().unwrap_or_default();
    let several = charts.iter().any(|chart| chart.name != charts[0].name);
    let of_name: Vec<&LocalChart> = charts.iter().filter(|chart| !several || chart.name == last).collect();
    if of_name.is_empty() {
        return Err(format!("the folder that stands for {} has no chart '{last}'", spec.url));
    }
    let tags: Vec<String> = of_name.iter().map(|chart| oci::chart_tag(&chart.version)).collect();
    if let ([tag], [chart]) = (&tags[..], &of_name[..]) {
        return Ok((tag.clone(), chart));
    }
    let OCIReference { tag, semver, semver_filter, digest } = spec.reference.clone().unwrap_or_default();
    let found = match (digest, semver, tag) {
        (Some(wanted), _, _) => {
            let chart = of_name.iter().position(|chart| Digest::of(&chart.archive).as_str() == wanted);
            return chart
                .map(|at| (tags[at].clone(), of_name[at]))
                .ok_or_else(|| format!("no chart that stands for {} has the digest {wanted}", spec.url));
        }
        (None, Some(range), _) => highest_of(&tags, &range, semver_filter.as_deref(), true)
            .map_err(|problem| format!("what stands for {} has {}: {problem}", spec.url, tags.join(", ")))?,
        (None, None, Some(tag)) => tag,
        (None, None, None) => highest_of(&tags, ">=0.0.0-0", None, true)?,
    };
    match tags.iter().position(|tag| *tag == found) {
        Some(at) => Ok((found, of_name[at])),
        None => Err(format!("what stands for {} has {}, not {found}", spec.url, tags.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(name: &str, version: &str) -> LocalChart {
        LocalChart {
            name: name.to_owned(),
            version: version.to_owned(),
            archive: version.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_local_chart_is_chosen_as_a_registry_would_choose() {
        let charts = [chart("web", "1.0.0"), chart("web", "1.2.0+b"), chart("api", "9.0.0")];
        let spec = |reference: OCIReference| OCIRepositorySpec {
            url: "oci://r.example.com/org/web".to_owned(),
            reference: Some(reference),
            ..OCIRepositorySpec::default()
        };
        let chosen =
            |reference| choose(&charts, &spec(reference)).map(|(tag, chart)| (tag, chart.version.clone()));
        let semver = |range: &str| OCIReference { semver: Some(range.to_owned()), ..Default::default() };
        let tag = |tag: &str| OCIReference { tag: Some(tag.to_owned()), ..Default::default() };
        let digest = |digest: String| OCIReference { digest: Some(digest), ..Default::default() };
        let newest = Ok(("1.2.0_b".to_owned(), "1.2.0+b".to_owned()));
        assert_eq!(chosen(semver("1.x")), newest);
        assert_eq!(chosen(OCIReference::default()), newest);
        assert_eq!(chosen(tag("1.0.0")).map(|found| found.1).as_deref(), Ok("1.0.0"));
        assert_eq!(
            chosen(digest(Digest::of(b"1.0.0").to_string())).map(|found| found.1).as_deref(),
            Ok("1.0.0")
        );
        assert!(chosen(semver("2.x")).unwrap_err().starts_with("what stands for"));
        let (tag_of_one, _) = choose(&charts[..1], &spec(semver("2.x"))).unwrap();
        assert_eq!(tag_of_one, "1.0.0");
        let error = chosen(tag("3.0.0")).unwrap_err();
        assert!(error.contains("has 1.0.0, 1.2.0_b, not 3.0.0"), "{error}");
    }
}
