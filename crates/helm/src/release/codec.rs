//! A record as text: JSON, compressed, in base64.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::Release;
use crate::Dialect;

/// A record unpacks to no more than this. One that fits etcd holds a few megabytes.
const MAX_RECORD: u64 = 100 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("release record is no base64")]
    Base64,
    #[error("release record does not unpack: {0}")]
    Gzip(String),
    #[error("release record is larger than {MAX_RECORD} bytes")]
    TooLarge,
    #[error("release record is no release: {0}")]
    Json(String),
}

/// The text that Helm of this dialect stores.
pub fn encode(release: &Release, dialect: Dialect) -> Result<String, std::io::Error> {
    let mut tree = serde_json::to_value(release)?;
    if dialect == Dialect::Helm3 {
        as_helm_3(&mut tree);
    }
    let text = yaml::json_text(&tree);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes())?;
    Ok(STANDARD.encode(encoder.finish()?))
}

/// Reads what any Helm since version 3 wrote. Records of the very first versions are not compressed.
pub fn decode(text: &[u8]) -> Result<Release, DecodeError> {
    let packed = STANDARD.decode(text).map_err(|_| DecodeError::Base64)?;
    let json = if packed.starts_with(&[0x1f, 0x8b, 0x08]) { unpack(&packed)? } else { packed };
    serde_json::from_slice(&json).map_err(|error| DecodeError::Json(error.to_string()))
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut json = Vec::new();
    GzDecoder::new(packed)
        .take(MAX_RECORD + 1)
        .read_to_end(&mut json)
        .map_err(|error| DecodeError::Gzip(error.to_string()))?;
    if json.len() as u64 > MAX_RECORD { Err(DecodeError::TooLarge) } else { Ok(json) }
}

/// Helm 3 writes unset times as empty strings, and knows neither apply methods nor times of files.
fn as_helm_3(record: &mut Json) {
    let Json::Object(fields) = record else { return };
    fields.remove("apply_method");
    if let Some(Json::Object(info)) = fields.get_mut("info") {
        info.remove("rollback_revision");
        for time in ["first_deployed", "last_deployed", "deleted"] {
            info.entry(time).or_insert_with(|| json!(""));
        }
    }
    for hook in fields.get_mut("hooks").and_then(Json::as_array_mut).into_iter().flatten() {
        if let Some(Json::Object(run)) = hook.get_mut("last_run") {
            run.entry("started_at").or_insert_with(|| json!(""));
            run.entry("completed_at").or_insert_with(|| json!(""));
        }
    }
    if let Some(Json::Object(chart)) = fields.get_mut("chart") {
        chart.remove("schemamodtime");
        chart.remove("modtime");
        for files in ["templates", "files"] {
            for file in chart.get_mut(files).and_then(Json::as_array_mut).into_iter().flatten() {
                if let Json::Object(file) = file {
                    file.remove("modtime");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Release {
        serde_json::from_value(json!({
            "name": "a", "version": 3, "namespace": "ns", "manifest": "x: <1>\n",
            "info": {"status": "deployed", "deleted": "", "first_deployed": "2026-01-02T03:04:05.6Z", "resources": null},
            "chart": {"metadata": {"name": "c", "version": "1.0.0"}, "values": {"n": 1.0}, "new": [1]},
            "config": {"n": 42.0, "s": "<&>"},
            "hooks": [{"name": "h", "events": ["pre-install"], "last_run": {"started_at": "", "completed_at": null, "phase": ""}, "delete_policies": ["odd"]}],
            "apply_method": "ssa",
            "future": true
        }))
        .unwrap()
    }

    #[test]
    fn a_record_survives_the_round_trip() {
        let record = sample();
        for dialect in [Dialect::Helm3, Dialect::Helm4] {
            let decoded = decode(encode(&record, dialect).unwrap().as_bytes()).unwrap();
            assert_eq!(decoded.config, Some(json!({"n": 42, "s": "<&>"}).as_object().unwrap().clone()));
            assert_eq!((decoded.version, decoded.other.get("future")), (3, Some(&json!(true))));
            assert_eq!(decoded.hooks, record.hooks);
            assert_eq!(
                decoded.apply_method,
                if dialect == Dialect::Helm4 { record.apply_method } else { None }
            );
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        assert_eq!(decode(b"!"), Err(DecodeError::Base64));
        assert!(matches!(decode(STANDARD.encode("[]").as_bytes()), Err(DecodeError::Json(_))));
        let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
        bomb.write_all(&vec![b' '; (MAX_RECORD + 2) as usize]).unwrap();
        assert_eq!(decode(STANDARD.encode(bomb.finish().unwrap()).as_bytes()), Err(DecodeError::TooLarge));
    }
}
