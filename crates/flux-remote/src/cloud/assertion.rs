//! Statements that a private key signs: what Entra and Google take instead of a password.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flux_api::secret::SecretString;
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// An RSA key. It cannot be printed.
pub(super) struct SigningKey(rsa::KeyPair);

#[derive(Clone, Copy)]
pub(super) enum Scheme {
    Rs256,
    Ps256,
}

impl SigningKey {
    /// The first RSA key in a PEM file, whatever else is in it.
    pub(super) fn from_pem(pem: &[u8]) -> Option<Self> {
        Pem::iter_from_buffer(pem).filter_map(Result::ok).find_map(|block| match block.label.as_str() {
            "PRIVATE KEY" => Self::from_pkcs8(&block.contents),
            "RSA PRIVATE KEY" => rsa::KeyPair::from_der(&block.contents).ok().map(Self),
            _ => None,
        })
    }

    pub(super) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        rsa::KeyPair::from_pkcs8(der).ok().map(Self)
    }

    /// Whether a certificate is one of this key.
    pub(super) fn is_of(&self, certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        certificate.public_key().subject_public_key.data.as_ref() == self.0.public_key().as_ref()
    }

    /// A JSON web token.
    pub(super) fn sign(&self, scheme: Scheme, mut header: Value, claims: &Value) -> Option<SecretString> {
        let (name, encoding): (&str, &'static dyn RsaEncoding) = match scheme {
            Scheme::Rs256 => ("RS256", &RSA_PKCS1_SHA256),
            Scheme::Ps256 => ("PS256", &RSA_PSS_SHA256),
        };
        header["alg"] = json!(name);
        header["typ"] = json!("JWT");
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0.sign(encoding, &SystemRandom::new(), message.as_bytes(), &mut signature).ok()?;
        Some(SecretString::new(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

/// The certificates in a PEM file, in their order.
pub(super) fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
        .collect()
}
