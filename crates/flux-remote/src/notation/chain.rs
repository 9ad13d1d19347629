//! Certificates of those who sign: what a chain has to be like, and when it is valid.

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::cosign::is_signed_by;

/// A certificate of a trust store: PEM, of which the first block counts, or DER.
pub(super) fn trusted_certificate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let der = match Pem::iter_from_buffer(bytes).next() {
        Some(Ok(block)) => block.contents,
        _ => bytes.to_vec(),
    };
    parse(&der).map_err(|_| "failed to parse a certificate of the trust store".to_owned())?;
    Ok(der)
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err("a certificate that is damaged".to_owned()),
    }
}

/// From the one that signs up to one that signed itself, each issued by the next, each for its purpose.
pub(super) fn check(chain: &[Vec<u8>]) -> Result<(), String> {
    let certificates: Vec<X509Certificate<'_>> =
        chain.iter().map(|der| parse(der)).collect::<Result<_, _>>()?;
    let [leaf, above @ ..] = certificates.as_slice() else {
        return Err("certificate-chain not present or is empty".to_owned());
    };
    let invalid = |problem: String| format!("certificate-chain is invalid, {problem}");
    let of = |certificate: &X509Certificate<'_>, problem: &str| {
        invalid(format!("certificate with subject \"{}\": {problem}", certificate.subject()))
    };
    check_leaf(leaf).map_err(|problem| of(leaf, problem))?;
    for (below, authority) in above.iter().enumerate() {
        check_authority(authority, below).map_err(|problem| of(authority, problem))?;
    }
    for (child, parent) in certificates.iter().zip(above) {
        if issued(child, child) {
            return Err(of(child, "only the last one may have signed itself"));
        }
        if !issued(child, parent) {
            return Err(of(child, &format!("it is not issued by \"{}\"", parent.subject())));
        }
    }
    match certificates.last() {
        Some(last) if issued(last, last) => Ok(()),
        Some(last) => Err(of(last, "the chain must end with a certificate that signed itself")),
        None => Err(invalid("there is none".to_owned())),
    }
}

fn issued(child: &X509Certificate<'_>, parent: &X509Certificate<'_>) -> bool {
    child.issuer().as_raw() == parent.subject().as_raw() && is_signed_by(child, parent)
}

fn check_leaf(leaf: &X509Certificate<'_>) -> Result<(), &'static str> {
    if leaf.is_ca() {
        return Err("if the basic constraints extension is present, the ca field must be set to false");
    }
    let usage = key_usage(leaf)?;
    // Everything but digital signatures and non-repudiation, which are the lowest two bits.
    if usage & 1 == 0 || usage & !0b11 != 0 {
        return Err("the key usage must be \"Digital Signature\" only");
    }
    let extended = leaf.extended_key_usage().ok().flatten();
    let excluded = extended.is_some_and(|usage| {
        let value = usage.value;
        value.server_auth
            || value.client_auth
            || value.email_protection
            || value.time_stamping
            || value.ocsp_signing
    });
    if excluded {
        return Err(
            "extended key usage must not contain ServerAuth, ClientAuth, EmailProtection, Timestamping or OCSPSigning",
        );
    }
    Ok(())
}

fn check_authority(authority: &X509Certificate<'_>, below: usize) -> Result<(), &'static str> {
    let constraints = authority.basic_constraints().ok().flatten().map(|extension| extension.value);
    let Some(constraints) = constraints.filter(|constraints| constraints.ca) else {
        return Err("ca field in basic constraints must be present, critical, and set to true");
    };
    if constraints.path_len_constraint.is_some_and(|most| (most as usize) < below) {
        return Err("the chain is longer than its path length allows");
    }
    // The sixth bit: signing certificates.
    if key_usage(authority)? & (1 << 5) == 0 {
        return Err("key usage must have the bit positions for key cert sign set");
    }
    Ok(())
}

fn key_usage(certificate: &X509Certificate<'_>) -> Result<u16, &'static str> {
    let found = certificate
        .extensions()
        .iter()
        .find(|extension| extension.oid == oid_registry::OID_X509_EXT_KEY_USAGE);
    let extension = found.ok_or("key usage extension must be present")?;
    if !extension.critical {
        return Err("key usage extension must be marked critical");
    }
    match extension.parsed_extension() {
        ParsedExtension::KeyUsage(usage) => Ok(usage.flags),
        _ => Err("key usage extension cannot be read"),
    }
}

fn seconds(der: &[u8]) -> Option<(i64, i64, String)> {
    let certificate = parse(der).ok()?;
    let validity = certificate.validity();
    let subject = certificate.subject().to_string();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp(), subject))
}

pub(super) fn valid_at(chain: &[Vec<u8>], at: Timestamp) -> Result<(), String> {
    for der in chain {
        let (start, end, subject) = seconds(der).ok_or("a certificate that is damaged")?;
        if at.as_second() < start {
            return Err(format!("{at} is before certificate \"{subject}\" validity period"));
        }
        if at.as_second() > end {
            return Err(format!("{at} is after certificate \"{subject}\" validity period"));
        }
    }
    Ok(())
}

pub(super) fn has_expired(chain: &[Vec<u8>], now: Timestamp) -> bool {
    chain.iter().filter_map(|der| seconds(der)).any(|(_, end, _)| now.as_second() > end)
}

/// Whether somebody would have to be asked if a certificate was revoked. Authorities that signed themselves are not asked about.
pub(super) fn revocation(chain: &[Vec<u8>]) -> Result<(), String> {
    for der in chain.iter().take(chain.len().saturating_sub(1)) {
        let certificate = parse(der)?;
        let asks = certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
            ParsedExtension::CRLDistributionPoints(_) => true,
            ParsedExtension::AuthorityInfoAccess(access) => access.accessdescs.iter().any(|description| {
                description.access_method == oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_OCSP
                    && matches!(description.access_location, GeneralName::URI(_))
            }),
            _ => false,
        });
        if asks {
            return Err(format!(
                "signing certificate with subject \"{}\" revocation status is unknown: revocation lists and responders are not asked; a trust policy may say \"override\": {{\"revocation\": \"log\"}}",
                certificate.subject()
            ));
        }
    }
    Ok(())
}
