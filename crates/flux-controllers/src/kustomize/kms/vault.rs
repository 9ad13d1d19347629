//! The transit engine of HashiCorp Vault or OpenBao.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sops::KeyPart;

use super::send;

pub(super) async fn decrypt(
    http: &reqwest::Client,
    token: &str,
    [address, engine, key]: [&str; 3],
    wrapped: &str,
) -> Result<KeyPart, String> {
    let url = format!("{}/v1/{}/decrypt/{key}", address.trim_end_matches('/'), engine.trim_matches('/'));
    let request = http.post(url).header("X-Vault-Token", token).json(&json!({ "ciphertext": wrapped }));
    let answer = send(request).await?;
    let text =
        answer.pointer("/data/plaintext").and_then(Value::as_str).ok_or("the answer holds no plaintext")?;
    // sops hands Vault the key as base64 of its own making, and Vault answers in base64 once.
    STANDARD.decode(text).map(KeyPart::new).map_err(|_| "the answer is no base64".to_owned())
}
