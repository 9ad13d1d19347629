//! Encrypted Secrets are shown with their keys and a mask instead of ciphertext. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

/// What stands where something encrypted stood.
pub(in crate::commands) const MASK: &str = "**SOPS**";

/// Masks what SOPS encrypted in a Secret; other objects stay as they are.
pub(super) fn mask(object: &mut Value) -> Result<(), String> {
    if object.get("kind").and_then(Value::as_str) != Some("Secret") {
        return Ok(());
    }
    let encrypted =
        object.pointer("/sops/mac").and_then(Value::as_str).is_some_and(|mac| mac.starts_with("ENC["));
    let docker = object.get("type").and_then(Value::as_str) == Some("kubernetes.io/dockerconfigjson");
    if encrypted {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("sops");
        }
        let plain = if docker { json!({"mask": MASK}).to_string() } else { MASK.to_owned() };
        set_all(object, "data", &BASE64_STANDARD.encode(&plain));
        set_all(object, "stringData", &plain);
    } else {
        mask_encoded(object)?;
        // Upstream writes the encoded mask here too.
        for (_, value) in strings(object, "stringData") {
            if value.as_str().is_some_and(looks_encrypted) {
                *value = BASE64_STANDARD.encode(MASK).into();
            }
        }
    }
    // An empty map is not written.
    if let Some(fields) = object.as_object_mut()
        && fields.get("data").and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        fields.remove("data");
    }
    Ok(())
}

fn mask_encoded(object: &mut Value) -> Result<(), String> {
    for (_, value) in strings(object, "data") {
        // Line ends do not count, as in Go.
        let text = value.as_str().unwrap_or_default().replace(['\r', '\n'], "");
        let decoded = BASE64_STANDARD.decode(&text).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
            };
            format!("illegal base64 data at input byte {at}")
        })?;
        if looks_encrypted(&String::from_utf8_lossy(&decoded)) {
            *value = BASE64_STANDARD.encode(MASK).into();
        }
    }
    Ok(())
}

fn looks_encrypted(text: &str) -> bool {
    text.contains("sops") && text.contains("ENC[")
}

fn set_all(object: &mut Value, field: &str, value: &str) {
    for (_, place) in strings(object, field) {
        *place = value.into();
    }
}

fn strings<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = (&'a String, &'a mut Value)> {
    object.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_secret_keeps_its_keys_only() {
        let mut secret = json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "ENC[x]"},
            "stringData": {"b": "ENC[y]"}, "sops": {"mac": "ENC[AES256]"}});
        mask(&mut secret).expect("it can be masked");
        let data = json!({"a": BASE64_STANDARD.encode(MASK)});
        assert_eq!((&secret["data"], &secret["stringData"]["b"]), (&data, &json!(MASK)));
        assert!(secret.get("sops").is_none());
    }

    #[test]
    fn an_encrypted_file_in_a_plain_secret_is_masked_and_the_rest_is_not() {
        let file = BASE64_STANDARD.encode("{\"data\": \"ENC[x]\", \"sops\": {}}");
        let mut secret = json!({"kind": "Secret", "data": {"file": file, "user": "YWRtaW4="}});
        mask(&mut secret).expect("it can be masked");
        assert_eq!(secret["data"], json!({"file": BASE64_STANDARD.encode(MASK), "user": "YWRtaW4="}));
    }

    #[test]
    fn data_that_is_not_encoded_is_an_error() {
        let mut secret = json!({"kind": "Secret", "data": {"a": "*"}});
        assert_eq!(mask(&mut secret), Err("illegal base64 data at input byte 0".to_owned()));
    }
}
