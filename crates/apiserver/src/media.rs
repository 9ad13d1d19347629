//! Which form the client speaks: JSON, YAML or protobuf in; an object, `Table` or metadata alone out.
//!
//! Negotiation only; the forms are made in `table` and `respond`. Protobuf is never written: a client that accepts
//! nothing else still gets JSON, and client-go reads the answer by its Content-Type.

use http::HeaderMap;

use crate::status::Status;
use crate::table::Include;

/// How the body of an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
}

/// What the answer shows of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Object,
    Table,
    /// `PartialObjectMetadata`, or its list.
    Metadata,
    MetadataList,
    /// Aggregated discovery, at its version.
    DiscoveryV2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept {
    pub encoding: Encoding,
    pub form: Form,
    /// The client asked for it indented.
    pub pretty: bool,
    /// What rows of a table carry.
    pub include: Include,
    /// The client would have liked protobuf best.
    pub protobuf: bool,
}

impl Accept {
    pub const JSON: Accept = Accept {
        encoding: Encoding::Json,
        form: Form::Object,
        pretty: false,
        include: Include::Metadata,
        protobuf: false,
    };

    /// Whether objects go out as they are kept.
    pub fn plain(self) -> bool {
        Accept { protobuf: false, ..self } == Accept::JSON
    }

    /// Reads `Accept`, taking the first form we can give.
    pub fn read(headers: &HeaderMap) -> Result<Accept, Status> {
        let header = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let header = header.collect::<Vec<_>>().join(",");
        if header.trim().is_empty() {
            return Ok(Accept::JSON);
        }
        header.split(',').find_map(one).ok_or_else(|| {
            Status::not_acceptable(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf",
            )
            .with_empty_details()
        })
    }
}

fn one(clause: &str) -> Option<Accept> {
    let mut parts = clause.split(';').map(str::trim);
    let media_type = parts.next()?;
    let encoding = match media_type {
        "application/json" | "application/vnd.kubernetes.protobuf" | "*/*" | "application/*" => {
            Encoding::Json
        }
        "application/yaml" | "application/vnd.kubernetes.yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut kind, mut version, mut group, mut pretty) = ("", "", "", false);
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "as" => kind = value,
            "v" => version = value,
            "g" => group = value,
            "pretty" => pretty = value == "1",
            _ => {}
        }
    }
    let form = match (kind, group, version) {
        ("", _, _) => Form::Object,
        ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
        ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Form::Metadata,
        ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Form::MetadataList,
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::DiscoveryV2,
        _ => return None,
    };
    Some(Accept { encoding, form, pretty, include: Include::Metadata, protobuf: media_type == BODY_TYPES[2] })
}

/// How a body that is no patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

pub const BODY_TYPES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

impl BodyType {
    pub fn read(headers: &HeaderMap) -> Result<BodyType, Status> {
        match media_type(headers) {
            "" | "application/json" => Ok(BodyType::Json),
            "application/yaml" | "application/vnd.kubernetes.yaml" => Ok(BodyType::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
            _ => Err(Status::unsupported_media_type(&BODY_TYPES)),
        }
    }
}

/// The four ways to say what shall change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub fn read(headers: &HeaderMap) -> Option<PatchType> {
        match media_type(headers) {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Some(PatchType::Apply),
            _ => None,
        }
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    let value =
        headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, text.parse().unwrap());
        Accept::read(&headers).ok().map(|accept| accept.form)
    }

    #[test]
    fn the_first_form_we_know_is_taken() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(kubectl), Some(Form::Table));
        assert_eq!(
            accept("application/json;as=Table;v=v9;g=meta.k8s.io,application/json"),
            Some(Form::Object)
        );
        assert_eq!(accept("application/vnd.kubernetes.protobuf"), Some(Form::Object));
        assert_eq!(accept("text/plain"), None);
        assert_eq!(accept("*/*"), Some(Form::Object));
    }
}
