//! A signer's certificate: who it names, who issued it, and which log has seen it.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::key::Hash;
use super::trust_root::{Authority, TrustRoot};
use super::{PublicKey, der};

/// 1.3.6.1.4.1.11129.2.4.2, encoded: the timestamps of certificate logs.
const TIMESTAMPS: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xd6, 0x79, 0x02, 0x04, 0x02];
const ISSUER: &str = "1.3.6.1.4.1.57264.1.8";
const ISSUER_OF_OLD: &str = "1.3.6.1.4.1.57264.1.1";
const CODE_SIGNING: &str = "1.3.6.1.5.5.7.3.3";

/// A leaf that a trusted authority issued.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) key: PublicKey,
    pub(super) names: Vec<String>,
    pub(super) issuer: String,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Reads a leaf and follows it to an authority of the root; a certificate log has to have seen it.
pub(super) fn trusted(leaf_der: &[u8], root: &TrustRoot) -> Result<Signer, String> {
    let leaf = parse(leaf_der)?;
    let key = PublicKey::from_der(leaf.public_key().raw).map_err(|error| error.to_string())?;
    let not_before = time(leaf.validity().not_before.timestamp())?;
    let not_after = time(leaf.validity().not_after.timestamp())?;
    check_purpose(&leaf)?;
    let issuer = root
        .authorities
        .iter()
        .filter(|authority| authority.valid.holds(not_before))
        .find_map(|authority| issued_by(&leaf, authority, not_before))
        .ok_or("the certificate was issued by nobody in the trusted root")?;
    check_timestamps(&leaf, &issuer, root)?;
    Ok(Signer { key, names: names(&leaf), issuer: oidc_issuer(&leaf), not_before, not_after })
}

pub(super) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err("a certificate that is damaged".to_owned()),
    }
}

fn time(seconds: i64) -> Result<Timestamp, String> {
    Timestamp::from_second(seconds).map_err(|_| "a certificate of no known time".to_owned())
}

/// The key of the authority that issued `leaf`, DER, if its whole chain holds.
fn issued_by(leaf: &X509Certificate<'_>, authority: &Authority, at: Timestamp) -> Option<Vec<u8>> {
    let chain: Vec<&[u8]> = authority.chain.iter().map(Vec::as_slice).collect();
    if !chain_holds(leaf, &chain, at) {
        return None;
    }
    Some(parse(chain.first()?).ok()?.public_key().raw.to_vec())
}

/// Whether each certificate is signed by the next, and all above the first are authorities that were valid then.
pub(super) fn chain_holds(leaf: &X509Certificate<'_>, above: &[&[u8]], at: Timestamp) -> bool {
    let Some(chain) = above.iter().map(|der| parse(der).ok()).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let mut child = leaf;
    for parent in &chain {
        if !parent.is_ca()
            || !is_valid(parent, at)
            || child.issuer() != parent.subject()
            || !is_signed_by(child, parent)
        {
            return false;
        }
        child = parent;
    }
    // The last one is trusted because it is in the file; that it signed itself is for its own sake.
    !chain.is_empty()
}

fn is_valid(certificate: &X509Certificate<'_>, at: Timestamp) -> bool {
    let validity = certificate.validity();
    validity.not_before.timestamp() <= at.as_second() && at.as_second() <= validity.not_after.timestamp()
}

pub(crate) fn is_signed_by(child: &X509Certificate<'_>, parent: &X509Certificate<'_>) -> bool {
    let Ok(key) = PublicKey::from_der(parent.public_key().raw) else { return false };
    let hash = match child.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.10045.4.3.2" | "1.2.840.113549.1.1.11" | "1.3.101.112" => Hash::Sha256,
        "1.2.840.10045.4.3.3" | "1.2.840.113549.1.1.12" => Hash::Sha384,
        "1.2.840.113549.1.1.13" => Hash::Sha512,
        _ => return false,
    };
    key.verifies_with(hash, child.tbs_certificate.as_ref(), &child.signature_value.data)
}

fn check_purpose(leaf: &X509Certificate<'_>) -> Result<(), String> {
    if leaf.is_ca() {
        return Err("the certificate is one of an authority".to_owned());
    }
    let usage = leaf.extended_key_usage().ok().flatten();
    let signs = usage.is_some_and(|usage| {
        usage.value.code_signing || usage.value.other.iter().any(|oid| oid.to_id_string() == CODE_SIGNING)
    });
    if signs { Ok(()) } else { Err("the certificate is not for signing code".to_owned()) }
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(found)) = leaf.subject_alternative_name() else { return Vec::new() };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::RFC822Name(text) | GeneralName::DNSName(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        // Fulcio writes names of machines so: an UTF8String within.
        GeneralName::OtherName(_, value) => {
            let (outer, _) = der::read(value)?;
            let inner = der::read(outer.content).map_or(outer.content, |(inner, _)| inner.content);
            String::from_utf8(inner.to_vec()).ok()
        }
        _ => None,
    };
    found.value.general_names.iter().filter_map(text).collect()
}

fn oidc_issuer(leaf: &X509Certificate<'_>) -> String {
    let value = |wanted: &str| {
        leaf.extensions()
            .iter()
            .find(|extension| extension.oid.to_id_string() == wanted)
            .map(|extension| extension.value)
    };
    if let Some(value) = value(ISSUER)
        && let Some((text, _)) = der::read(value)
    {
        return String::from_utf8_lossy(text.content).into_owned();
    }
    value(ISSUER_OF_OLD).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// One of the timestamps in the certificate has to be by a log of the root.
fn check_timestamps(leaf: &X509Certificate<'_>, issuer_key: &[u8], root: &TrustRoot) -> Result<(), String> {
    let missing = "certificate does not include required embedded SCT";
    let extension = leaf
        .extensions()
        .iter()
        .find(|extension| matches!(extension.parsed_extension(), ParsedExtension::SCT(_)))
        .ok_or(missing)?;
    let (list, _) = der::read(extension.value).ok_or(missing)?;
    let tbs = der::without_extension(leaf.tbs_certificate.as_ref(), TIMESTAMPS)
        .ok_or("a certificate that is damaged")?;
    let mut rest = list.content.get(2..).unwrap_or_default();
    while let Some((length, after)) = take_number(rest, 2) {
        let Some((timestamp, after)) = after.split_at_checked(length) else { break };
        if is_timestamp(timestamp, &tbs, issuer_key, root) == Some(true) {
            return Ok(());
        }
        rest = after;
    }
    Err("no timestamp of the certificate is by a log of the trusted root".to_owned())
}

/// RFC 6962: version, log, time, extensions, then the signature over these and the certificate without timestamps.
fn is_timestamp(bytes: &[u8], tbs: &[u8], issuer_key: &[u8], root: &TrustRoot) -> Option<bool> {
    let (&version, rest) = bytes.split_first()?;
    let (log_id, rest) = rest.split_at_checked(32)?;
    let (time, rest) = rest.split_at_checked(8)?;
    let (length, rest) = take_number(rest, 2)?;
    let (extensions, rest) = rest.split_at_checked(length)?;
    let (algorithm, rest) = rest.split_at_checked(2)?;
    let (length, signature) = take_number(rest, 2)?;
    let milliseconds = i64::from_be_bytes(time.try_into().ok()?);
    let at = Timestamp::from_millisecond(milliseconds).ok()?;
    // Version 1, SHA-256, and a kind of key that a log has.
    if version != 0 || algorithm[0] != 4 || signature.len() != length {
        return Some(false);
    }
    let mut message = vec![0, 0];
    message.extend_from_slice(time);
    message.extend_from_slice(&[0, 1]);
    message.extend_from_slice(&Sha256::digest(issuer_key));
    message.extend_from_slice(&u32::try_from(tbs.len()).ok()?.to_be_bytes()[1..]);
    message.extend_from_slice(tbs);
    message.extend_from_slice(&u16::try_from(extensions.len()).ok()?.to_be_bytes());
    message.extend_from_slice(extensions);
    let logs = root.certificate_logs.iter().filter(|log| log.id == log_id && log.valid.holds(at));
    Some(logs.into_iter().any(|log| log.key.verifies(&message, signature)))
}

fn take_number(bytes: &[u8], digits: usize) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_at_checked(digits)?;
    Some((number.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)), rest))
}
