//! One encrypted value: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use ::age::secrecy::zeroize::Zeroizing;
use aes_gcm::aead::consts::{U12, U16, U24, U32};
use aes_gcm::aead::generic_array::{ArrayLength, GenericArray};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, Key};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::tree::{Comment, Value};
use crate::{Error, time};

/// Go's standard alphabet: padded, and not particular about the bits that are left over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// The key of a file's values. Wiped when dropped; it cannot be printed.
pub struct DataKey(Zeroizing<Vec<u8>>);

impl DataKey {
    /// Takes what a key service or [`crate::Unwrapping`] gave.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Error> {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() == 32 { Ok(Self(bytes)) } else { Err(Error::DataKeyLength(bytes.len())) }
    }
}

/// Opens a value that was closed for the place `aad`. What is empty was never encrypted.
pub(crate) fn decrypt(text: &[u8], key: &DataKey, aad: &[u8]) -> Result<Value, &'static str> {
    if text.is_empty() {
        return Ok(Value::Str(Vec::new()));
    }
    let parts = Parts::split(text).ok_or("it is not in the form ENC[AES256_GCM,…]")?;
    let mut sealed = decode(parts.data, "data is not base64")?;
    let iv = decode(parts.iv, "iv is not base64")?;
    sealed.extend(decode(parts.tag, "tag is not base64")?);
    let plain = match iv.len() {
        // What sops always writes.
        32 => open::<U32>(key, &iv, &sealed, aad),
        24 => open::<U24>(key, &iv, &sealed, aad),
        16 => open::<U16>(key, &iv, &sealed, aad),
        12 => open::<U12>(key, &iv, &sealed, aad),
        _ => return Err("iv has a length that sops does not write"),
    }
    .ok_or("authentication failed: the value was changed or moved, or this is not its key")?;
    typed(plain, parts.kind)
}

struct Parts<'a> {
    data: &'a [u8],
    iv: &'a [u8],
    tag: &'a [u8],
    kind: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Whatever follows the last bracket of the first line is ignored, as sops does.
    fn split(text: &'a [u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"ENC[AES256_GCM,data:")?;
        let line = rest.split(|byte| *byte == b'\n').next()?;
        let inner = &line[..line.iter().rposition(|byte| *byte == b']')?];
        let (inner, kind) = split_last(inner, b",type:")?;
        let (inner, tag) = split_last(inner, b",tag:")?;
        let (data, iv) = split_last(inner, b",iv:")?;
        [data, iv, tag, kind].iter().all(|part| !part.is_empty()).then_some(Self { data, iv, tag, kind })
    }
}

fn split_last<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(separator.len()).rposition(|window| window == separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

fn decode(text: &[u8], problem: &'static str) -> Result<Vec<u8>, &'static str> {
    if text.contains(&b'\r') {
        let without: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\r').collect();
        return BASE64.decode(without).map_err(|_| problem);
    }
    BASE64.decode(text).map_err(|_| problem)
}

fn open<N: ArrayLength<u8>>(key: &DataKey, iv: &[u8], sealed: &[u8], aad: &[u8]) -> Option<Vec<u8>> {
    let cipher = AesGcm::<Aes256, N>::new(Key::<Aes256>::from_slice(&key.0));
    cipher.decrypt(GenericArray::from_slice(iv), Payload { msg: sealed, aad }).ok()
}

fn typed(plain: Vec<u8>, kind: &[u8]) -> Result<Value, &'static str> {
    let text = || std::str::from_utf8(&plain).ok();
    match kind {
        b"str" => Ok(Value::Str(plain)),
        b"bytes" => Ok(Value::Bytes(plain)),
        b"comment" => Ok(Value::Comment(Comment { text: plain, inline: false })),
        b"int" => text().and_then(|text| text.parse().ok()).map(Value::Int).ok_or("it is no integer"),
        b"float" => text().and_then(parse_float).map(Value::Float).ok_or("it is no float"),
        b"bool" => parse_bool(&plain).map(Value::Bool).ok_or("it is no boolean"),
        b"time" => text().and_then(time::parse).map(Value::Time).ok_or("it is no time"),
        _ => Err("its type is unknown"),
    }
}

/// `strconv.ParseFloat`: too large a number is an error, infinity has to be spelled out.
fn parse_float(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| {
        value.is_finite() || value.is_nan() || text.trim_start_matches(['+', '-']).starts_with(['i', 'I'])
    })
}

/// `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &[u8]) -> Option<bool> {
    match text {
        b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True" => Some(true),
        b"0" | b"f" | b"F" | b"FALSE" | b"false" | b"False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> &'static str {
        let key = DataKey::new(vec![7; 32]).ok().unwrap();
        decrypt(text.as_bytes(), &key, b"a:").err().unwrap()
    }

    #[test]
    fn damaged_values_are_named_not_shown() {
        assert_eq!(problem("plain"), "it is not in the form ENC[AES256_GCM,…]");
        assert_eq!(problem("ENC[AES256_GCM,data:,iv:AA==,tag:AA==,type:str]"), problem("plain"));
        assert_eq!(problem("ENC[AES256_GCM,data:?,iv:AA==,tag:AA==,type:str]"), "data is not base64");
        assert_eq!(
            problem("ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]"),
            "iv has a length that sops does not write"
        );
        let iv = "AAAAAAAAAAAAAAAAAAAAAA==";
        assert!(
            problem(&format!("ENC[AES256_GCM,data:AA==,iv:{iv},tag:AA==,type:str]")).starts_with("authen")
        );
    }

    #[test]
    fn numbers_are_read_as_in_go() {
        assert_eq!(parse_float("1e400"), None);
        assert_eq!(parse_float("+Inf"), Some(f64::INFINITY));
        assert_eq!(parse_float("0.5"), Some(0.5));
        assert!(DataKey::new(vec![0; 31]).is_err());
    }
}
