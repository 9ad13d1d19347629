//! A signature's envelope: a payload, attributes that are signed with it, and the signer's certificates. Written in JSON here,
//! in CBOR in `cose`.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::{chain, cose};

pub(super) const MEDIA_TYPE: &str = "application/jose+json";
const PAYLOAD: &str = "application/vnd.cncf.notary.payload.v1+json";
const SCHEME: &str = "io.cncf.notary.signingScheme";
const SIGNING_TIME: &str = "io.cncf.notary.signingTime";
const AUTHENTIC_TIME: &str = "io.cncf.notary.authenticSigningTime";
const EXPIRY: &str = "io.cncf.notary.expiry";
const PLUGIN: &str = "io.cncf.notary.verificationPlugin";
const LONGEST_CHAIN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    X509,
    SigningAuthority,
}

/// What was signed, by whom and when; the signature holds, whoever's it is.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) payload: Vec<u8>,
    pub(super) scheme: Scheme,
    pub(super) signing_time: Timestamp,
    pub(super) expiry: Option<Timestamp>,
    /// DER, from the one that signed upwards.
    pub(super) chain: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
struct File {
    payload: String,
    protected: String,
    header: Header,
    signature: String,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    x5c: Vec<String>,
}

/// An envelope taken apart, whichever way it is written.
pub(super) struct Parts {
    /// What is signed along with the payload.
    pub(super) attributes: Map<String, Value>,
    /// DER, from the one that signed upwards.
    pub(super) chain: Vec<Vec<u8>>,
    /// The bytes that the signature is over.
    pub(super) message: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl Envelope {
    /// `media_type` says how it is written.
    pub(super) fn read(media_type: &str, bytes: &[u8]) -> Result<Self, String> {
        let parts = match media_type {
            MEDIA_TYPE => json_parts(bytes)?,
            cose::MEDIA_TYPE => {
                cose::read(bytes).ok_or("unable to parse the digital signature, error : it is no COSE")?
            }
            other => {
                return Err(format!(
                    "signature envelope format with media type \"{other}\" is not supported"
                ));
            }
        };
        if parts.chain.is_empty() || parts.chain.len() > LONGEST_CHAIN {
            return Err("certificate chain is not present, or too long".to_owned());
        }
        let leaf = &parts.chain[0];
        let algorithm = Algorithm::of(leaf)?;
        let named = parts.attributes.get("alg").and_then(Value::as_str).unwrap_or_default();
        if named != algorithm.name {
            return Err(format!(
                "mismatch between signature algorithm derived from signing certificate ({}) and signing algorithm specified ({named})",
                algorithm.name
            ));
        }
        if !algorithm.verifies(leaf, &parts.message, &parts.signature) {
            return Err("signature is invalid. Error: it is not of the certificate's key".to_owned());
        }
        let attributes = Attributes { protected: &parts.attributes };
        let envelope = attributes.envelope(parts.payload, parts.chain)?;
        chain::check(&envelope.chain)?;
        Ok(envelope)
    }
}

fn json_parts(bytes: &[u8]) -> Result<Parts, String> {
    let file: File = serde_json::from_slice(bytes)
        .map_err(|error| format!("unable to parse the digital signature, error : {error}"))?;
    let decode = |text: &str, what: &str| {
        URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("signature is invalid. Error: {what} is no base64"))
    };
    let attributes = serde_json::from_slice(&decode(&file.protected, "protected header")?)
        .map_err(|error| format!("jws envelope protected header can't be decoded: {error}"))?;
    let chain = file.header.x5c.iter().map(|text| STANDARD.decode(text)).collect::<Result<_, _>>();
    Ok(Parts {
        attributes,
        chain: chain.map_err(|_| "malformed leaf certificate")?,
        message: format!("{}.{}", file.protected, file.payload).into_bytes(),
        payload: decode(&file.payload, "payload")?,
        signature: decode(&file.signature, "signature")?,
    })
}

/// What is signed along with the payload.
struct Attributes<'a> {
    protected: &'a Map<String, Value>,
}

impl Attributes<'_> {
    fn envelope(&self, payload: Vec<u8>, chain: Vec<Vec<u8>>) -> Result<Envelope, String> {
        let text = |name: &str| self.protected.get(name).and_then(Value::as_str);
        if text("cty") != Some(PAYLOAD) {
            let found = text("cty").unwrap_or_default();
            return Err(format!("payload content type \"{found}\" not supported"));
        }
        let scheme = match text(SCHEME) {
            Some("notary.x509") => Scheme::X509,
            Some("notary.x509.signingAuthority") => Scheme::SigningAuthority,
            other => return Err(format!("unsupported SigningScheme: `{}`", other.unwrap_or_default())),
        };
        let (own, foreign) = match scheme {
            Scheme::X509 => (SIGNING_TIME, AUTHENTIC_TIME),
            Scheme::SigningAuthority => (AUTHENTIC_TIME, SIGNING_TIME),
        };
        if self.protected.contains_key(foreign) {
            return Err(format!("\"{foreign}\" header must not be present for this signing scheme"));
        }
        let signing_time = self.time(own)?.ok_or("signing-time not present")?;
        let expiry = self.time(EXPIRY)?;
        if expiry.is_some_and(|expiry| expiry <= signing_time) {
            return Err("expiry cannot be equal or before the signing time".to_owned());
        }
        self.check_critical(scheme, expiry.is_some())?;
        Ok(Envelope { payload, scheme, signing_time, expiry, chain })
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, String> {
        let Some(value) = self.protected.get(name) else { return Ok(None) };
        let time = value.as_str().and_then(|text| text.parse().ok());
        time.map(Some).ok_or_else(|| format!("\"{name}\" header is no time"))
    }

    /// What has to be understood is marked, and what is marked is understood: there are no plugins.
    fn check_critical(&self, scheme: Scheme, expires: bool) -> Result<(), String> {
        let marked: Vec<&str> = match self.protected.get("crit").and_then(Value::as_array) {
            Some(names) if !names.is_empty() => names.iter().filter_map(Value::as_str).collect(),
            _ => return Err("missing \"crit\" header".to_owned()),
        };
        let mut needed = vec![SCHEME];
        needed.extend(expires.then_some(EXPIRY));
        needed.extend((scheme == Scheme::SigningAuthority).then_some(AUTHENTIC_TIME));
        if let Some(missing) = needed.iter().find(|name| !marked.contains(name)) {
            return Err(format!("these required headers are not marked as critical: [{missing}]"));
        }
        match marked.iter().find(|name| !needed.contains(name)) {
            Some(name) if name.starts_with(PLUGIN) => {
                Err("the signature asks for a verification plugin, and plugins are not supported".to_owned())
            }
            Some(name) => Err(format!("\"{name}\" header is marked critical and not known")),
            None => Ok(()),
        }
    }
}

/// The only one that goes with a certificate's key.
struct Algorithm {
    name: &'static str,
    algorithm: &'static dyn VerificationAlgorithm,
}

impl Algorithm {
    fn of(leaf: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| "malformed leaf certificate")?;
        let with =
            |name: &'static str, algorithm: &'static dyn VerificationAlgorithm| Ok(Self { name, algorithm });
        match certificate.public_key().parsed() {
            Ok(PublicKey::RSA(key)) => match key.key_size() {
                2048 => with("PS256", &RSA_PSS_2048_8192_SHA256),
                3072 => with("PS384", &RSA_PSS_2048_8192_SHA384),
                4096 => with("PS512", &RSA_PSS_2048_8192_SHA512),
                bits => Err(format!("rsa key size {bits} bits is not supported")),
            },
            Ok(PublicKey::EC(point)) => match point.key_size() {
                256 => with("ES256", &ECDSA_P256_SHA256_FIXED),
                384 => with("ES384", &ECDSA_P384_SHA384_FIXED),
                // A point of 521 bits is written in whole bytes.
                521..=528 => with("ES512", &ECDSA_P521_SHA512_FIXED),
                bits => Err(format!("ecdsa key size {bits} bits is not supported")),
            },
            _ => Err("unsupported public key type".to_owned()),
        }
    }

    fn verifies(&self, leaf: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return false };
        let bits = certificate.public_key().subject_public_key.data.as_ref();
        UnparsedPublicKey::new(self.algorithm, bits).verify(message, signature).is_ok()
    }
}
