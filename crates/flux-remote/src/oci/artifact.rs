//! Media types of what Flux and Helm keep in registries, and how Helm writes versions as tags.

/// Configuration of an artifact that `flux push artifact` made.
pub const FLUX_CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
/// Its content.
pub const FLUX_CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
/// Configuration of a chart: its `Chart.yaml` as JSON.
pub const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// A chart's archive.
pub const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// What stands for `+` in a tag.
pub const HELM_TAG_METADATA: char = '_';

/// One layer to be pushed.
#[derive(Clone, Debug)]
pub struct ArtifactLayer {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// The tag of a chart's version: a tag has no `+`.
pub fn chart_tag(version: &str) -> String {
    version.replace('+', "_")
}

/// The version that a chart's tag stands for.
pub fn chart_version(tag: &str) -> String {
    tag.replace(HELM_TAG_METADATA, "+")
}
