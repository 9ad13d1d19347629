//! Whether a certificate and a key in PEM belong together, told as Go tells it.

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};

pub(super) fn check(certificate: &str, key: &str) -> Result<(), String> {
    judge(certificate, key).map_err(|problem| format!("tls: {problem}"))
}

fn judge(certificate: &str, key: &str) -> Result<(), String> {
    let certificate = first(certificate, |label| label == "CERTIFICATE").map_err(|others| match &others[..] {
        [] => "failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => {
            "failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned()
        }
        others => format!(
            "failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })?;
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let key = first(key, is_key).map_err(|others| match &others[..] {
        [] => "failed to find any PEM data in key input".to_owned(),
        [one] if one == "CERTIFICATE" => {
            "found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        others => format!(
            "failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })?;
    let (_, certificate) = X509Certificate::from_der(&certificate)
        .map_err(|error| format!("failed to parse certificate: {error}"))?;
    let unreadable = "failed to parse private key";
    let key = PrivateKeyDer::try_from(key).map_err(|_| unreadable.to_owned())?;
    let key = any_supported_type(&key).map_err(|_| unreadable.to_owned())?;
    let public = key.public_key().ok_or(unreadable)?;
    let (_, public) = SubjectPublicKeyInfo::from_der(&public).map_err(|_| unreadable.to_owned())?;
    let known = certificate.public_key();
    if known.algorithm.algorithm != public.algorithm.algorithm {
        return Err("private key type does not match public key type".to_owned());
    }
    if known.subject_public_key != public.subject_public_key {
        return Err("private key does not match public key".to_owned());
    }
    Ok(())
}

/// The first block that is wanted, or what the others are called.
fn first(text: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<u8>, Vec<String>> {
    let mut others = Vec::new();
    for block in Pem::iter_from_buffer(text.as_bytes()).flatten() {
        if wanted(&block.label) {
            return Ok(block.contents);
        }
        others.push(block.label);
    }
    Err(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_pair_that_does_not_fit_is_told_as_by_upstream() {
        let ((certificate, key), (_, other)) = (pair(), pair());
        assert_eq!(check(&certificate, &key), Ok(()));
        let both = format!("{key}{certificate}");
        assert_eq!(check(&both, &both), Ok(()), "what else is in the files does not matter");
        for (certificate, key, problem) in [
            ("x", key.as_str(), "tls: failed to find any PEM data in certificate input"),
            (&certificate, "x", "tls: failed to find any PEM data in key input"),
            (&certificate, &other, "tls: private key does not match public key"),
            (
                &certificate,
                &certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
        ] {
            assert_eq!(check(certificate, key).unwrap_err(), problem);
        }
        assert!(check(&key, &key).unwrap_err().ends_with("PEM inputs may have been switched"));
    }
}
