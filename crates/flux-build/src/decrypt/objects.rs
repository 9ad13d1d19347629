//! Encrypted objects: one that carries its own `sops` field, or a Secret with an encrypted file in its data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::names::{DISABLED, KUSTOMIZE_DECRYPT};
use serde_json::Value;
use sops::{Encrypted, Format};

use super::{Keyring, Unopened, format_of, is_encrypted};

/// The object without encryption; `None` when it has none, or asked to be left alone.
pub(crate) fn object(object: &Value, keys: &Keyring) -> Result<Option<Value>, Unopened> {
    if opted_out(object) {
        return Ok(None);
    }
    if object.pointer("/sops/mac").and_then(Value::as_str).is_some_and(|mac| !mac.is_empty()) {
        // Values are bound to their path, not to their place in the text, so an object that went through
        // a build opens as the file it came from.
        let encrypted = Encrypted::parse(object.to_string().as_bytes(), Format::Json)?;
        let text = keys.open(&encrypted)?.to_bytes(Format::Json)?;
        return serde_json::from_slice(&text).map(Some).map_err(|_| {
            let problem = "what was decrypted is not an object".to_owned();
            Unopened::Failed(sops::Error::Output { format: Format::Json, problem })
        });
    }
    if object.get("kind").and_then(Value::as_str) == Some("Secret") {
        return secret(object, keys);
    }
    Ok(None)
}

fn secret(object: &Value, keys: &Keyring) -> Result<Option<Value>, Unopened> {
    let Some(data) = object.get("data").and_then(Value::as_object) else { return Ok(None) };
    let mut opened = None;
    for (key, value) in data {
        // Text that is no base64 is for the API server to refuse.
        let Some(bytes) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) else { continue };
        let Some(format) = recognise(&bytes) else { continue };
        let encrypted = Encrypted::parse(&bytes, format)?;
        let plain = keys.open(&encrypted)?.to_bytes(format_of(key))?;
        let target = opened.get_or_insert_with(|| object.clone());
        target["data"][key] = Value::String(STANDARD.encode(plain));
    }
    Ok(opened)
}

fn recognise(bytes: &[u8]) -> Option<Format> {
    [Format::Json, Format::Dotenv, Format::Ini, Format::Yaml]
        .into_iter()
        .find(|format| is_encrypted(bytes, *format))
}

fn opted_out(object: &Value) -> bool {
    let mark = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let mark = mark.and_then(|annotations| annotations.get(KUSTOMIZE_DECRYPT)).and_then(Value::as_str);
    mark.is_some_and(|value| value.eq_ignore_ascii_case(DISABLED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(metadata: Value) -> Option<bool> {
        let encrypted = json!({ "kind": "Secret", "metadata": metadata, "sops": { "mac": "ENC[broken]" } });
        object(&encrypted, &Keyring::default()).ok().map(|opened| opened.is_some())
    }

    #[test]
    fn an_object_may_ask_to_be_left_encrypted() {
        for value in ["disabled", "Disabled", "DISABLED"] {
            assert_eq!(
                outcome(json!({ "annotations": { KUSTOMIZE_DECRYPT: value } })),
                Some(false),
                "{value}"
            );
        }
        // Anything else is opened, or is an error: another value, and a label.
        assert_eq!(outcome(json!({ "annotations": { KUSTOMIZE_DECRYPT: "enabled" } })), None);
        assert_eq!(outcome(json!({ "labels": { KUSTOMIZE_DECRYPT: "disabled" } })), None);
        assert_eq!(outcome(json!({})), None);
    }

    #[test]
    fn what_is_not_encrypted_is_left_as_it_is() {
        let plain = json!({ "kind": "Secret", "data": { "a": STANDARD.encode("plain"), "b": "no base64!" } });
        assert!(object(&plain, &Keyring::default()).is_ok_and(|opened| opened.is_none()));
        let map = json!({ "kind": "ConfigMap", "data": { "a": "mac: ENC[" } });
        assert!(object(&map, &Keyring::default()).is_ok_and(|opened| opened.is_none()));
    }
}
