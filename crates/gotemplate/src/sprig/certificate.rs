//! `genCA`, `genSelfSignedCert`, `genSignedCert` and their kin: certificates as Go's x509 writes them.

use std::any::Any;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::tz::Offset;
use sha2::{Digest, Sha256};

use super::der::{self, bit_string, element, integer, oid, sequence};
use super::key::{self, Key};
use super::{Answer, base64, int_arg, string, text_arg};
use crate::context::{Context, Failure};
use crate::fmt;
use crate::function::Function;
use crate::value::{Object, Type, Value};

const S: Type = Type::String;
const I: Type = Type::Int;
const L: Type = Type::LIST;
const CERTIFICATE: Type = Type::Struct("sprig.certificate");

pub const FUNCTIONS: &[Function] = &[
    Function::new("genPrivateKey", &[S], gen_private_key),
    Function::new("buildCustomCert", &[S, S], build_custom_cert),
    Function::new("genCA", &[S, I], |ctx, args| authority(ctx, args, new_key(ctx)?)),
    Function::new("genCAWithKey", &[S, I, S], |ctx, args| authority(ctx, args, given_key(args, 2)?)),
    Function::new("genSelfSignedCert", &[S, L, L, I], |ctx, args| self_signed(ctx, args, new_key(ctx)?)),
    Function::new("genSelfSignedCertWithKey", &[S, L, L, I, S], |ctx, args| {
        self_signed(ctx, args, given_key(args, 4)?)
    }),
    Function::new("genSignedCert", &[S, L, L, I, CERTIFICATE], |ctx, args| signed(ctx, args, new_key(ctx)?)),
    Function::new("genSignedCertWithKey", &[S, L, L, I, CERTIFICATE, S], |ctx, args| {
        signed(ctx, args, given_key(args, 5)?)
    }),
];

/// Steps that making a key counts for: it takes a good part of a second.
const SLOW: u64 = 500_000;

/// A certificate and its key, in PEM. No `Debug`: the key is a secret.
pub struct Certificate {
    cert: String,
    key: String,
}

impl Object for Certificate {
    fn type_name(&self) -> &'static str {
        "sprig.certificate"
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Cert" => Some(Value::from(self.cert.as_str())),
            "Key" => Some(Value::from(self.key.as_str())),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("Cert", Value::from(self.cert.as_str())), ("Key", Value::from(self.key.as_str()))]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn gen_private_key(ctx: &Context<'_>, args: &[Value]) -> Answer {
    ctx.work(SLOW)?;
    let key = match text_arg(args, 0) {
        b"" | b"rsa" => key::rsa(ctx, 4096),
        b"dsa" => Ok(key::dsa(ctx)),
        b"ecdsa" => Ok(key::ecdsa(ctx)),
        b"ed25519" => Ok(key::ed25519(ctx)),
        other => return string(format!("Unknown type {}", String::from_utf8_lossy(other))),
    };
    match key {
        Ok(key) => string(key.pem()),
        Err(error) => string(format!("failed to generate private key: {error}")),
    }
}

fn new_key(ctx: &Context<'_>) -> Result<Key, Failure> {
    ctx.work(SLOW)?;
    key::rsa(ctx, 2048).map_err(|error| Failure::new(format!("error generating rsa key: {error}")))
}

fn given_key(args: &[Value], at: usize) -> Result<Key, Failure> {
    Key::from_pem(&String::from_utf8_lossy(text_arg(args, at)))
        .map_err(|error| Failure::new(format!("parsing private key: {error}")))
}

fn build_custom_cert(_: &Context<'_>, args: &[Value]) -> Answer {
    let cert =
        base64::decode(text_arg(args, 0)).map_err(|_| Failure::new("unable to decode base64 certificate"))?;
    let key =
        base64::decode(text_arg(args, 1)).map_err(|_| Failure::new("unable to decode base64 private key"))?;
    let cert = String::from_utf8_lossy(&cert).into_owned();
    let key = String::from_utf8_lossy(&key).into_owned();
    let (_, bytes) = der::read_pem(&cert).ok_or_else(|| Failure::new("unable to decode certificate"))?;
    if Parent::read(&bytes).is_none() {
        return Err(Failure::new(
            "error parsing certificate: decodedCert.Bytes: x509: malformed certificate".to_owned(),
        ));
    }
    Key::from_pem(&key).map_err(|error| Failure::new(format!("error parsing private key: {error}")))?;
    Ok(Value::object(Certificate { cert, key }))
}

fn authority(ctx: &Context<'_>, args: &[Value], key: Key) -> Answer {
    let request = Request::new(ctx, text_arg(args, 0), None, None, int_arg(args, 1), true)?;
    request.issue(&key, None)
}

fn self_signed(ctx: &Context<'_>, args: &[Value], key: Key) -> Answer {
    let request = Request::new(ctx, text_arg(args, 0), args.get(1), args.get(2), int_arg(args, 3), false)?;
    request.issue(&key, None)
}

fn signed(ctx: &Context<'_>, args: &[Value], key: Key) -> Answer {
    let Some(ca) = args[4].downcast::<Certificate>() else {
        return Err(Failure::new("unable to decode certificate"));
    };
    let (_, bytes) = der::read_pem(&ca.cert).ok_or_else(|| Failure::new("unable to decode certificate"))?;
    let parent = Parent::read(&bytes).ok_or_else(|| {
        Failure::new("error parsing certificate: decodedSignerCert.Bytes: x509: malformed certificate")
    })?;
    let parent_key = Key::from_pem(&ca.key)
        .map_err(|error| Failure::new(format!("error parsing private key: {error}")))?;
    let request = Request::new(ctx, text_arg(args, 0), args.get(1), args.get(2), int_arg(args, 3), false)?;
    request.issue(&key, Some((parent, parent_key)))
}

/// What is read of a certificate that signs another.
struct Parent {
    subject: Vec<u8>,
    public_info: Vec<u8>,
    key_id: Option<Vec<u8>>,
}

impl Parent {
    fn read(bytes: &[u8]) -> Option<Self> {
        let outer = der::read(bytes).filter(|outer| outer.tag == der::SEQUENCE)?;
        let body = der::read(outer.content)?;
        let fields = der::read_all(body.content)?;
        // The version is optional; serial, algorithm, issuer, validity, subject and key follow.
        let start = usize::from(fields.first()?.tag == 0xa0);
        let subject = fields.get(start + 4)?.whole.to_vec();
        let public_info = fields.get(start + 5)?.whole.to_vec();
        let key_id = fields.iter().find(|field| field.tag == 0xa3).and_then(|field| key_id(field.content));
        Some(Self { subject, public_info, key_id })
    }
}

/// The subject key identifier among a certificate's extensions.
fn key_id(extensions: &[u8]) -> Option<Vec<u8>> {
    let list = der::read(extensions)?;
    for extension in der::read_all(list.content)? {
        let parts = der::read_all(extension.content)?;
        if parts.first()?.content == SUBJECT_KEY_ID {
            return Some(der::read(parts.last()?.content)?.content.to_vec());
        }
    }
    None
}

const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXT_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// What a certificate is to say.
struct Request {
    subject: Vec<u8>,
    serial: [u8; 16],
    not_before: Timestamp,
    not_after: Timestamp,
    addresses: Vec<IpAddr>,
    names: Vec<Vec<u8>>,
    is_authority: bool,
}

impl Request {
    fn new(
        ctx: &Context<'_>,
        name: &[u8],
        addresses: Option<&Value>,
        names: Option<&Value>,
        days: i64,
        is_authority: bool,
    ) -> Result<Self, Failure> {
        let addresses = addresses.and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default();
        let names = names.and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default();
        let addresses = addresses.iter().map(address).collect::<Result<_, _>>()?;
        let names = names.iter().map(dns_name).collect::<Result<_, _>>()?;
        let mut serial = [0; 16];
        ctx.host().random(&mut serial);
        let not_before = ctx.host().now();
        let seconds = not_before.as_second().saturating_add(days.saturating_mul(86_400));
        let not_after = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        Ok(Self { subject: subject(name), serial, not_before, not_after, addresses, names, is_authority })
    }

    /// Signs with the parent's key, or with the certificate's own.
    fn issue(&self, key: &Key, parent: Option<(Parent, Key)>) -> Answer {
        let creating = |error: String| Failure::new(format!("error creating certificate: {error}"));
        let public_info = key.public_info().map_err(creating)?;
        let (issuer, authority_id, signer) = match &parent {
            None => (self.subject.as_slice(), None, key),
            Some((parent, signer)) => {
                if signer.public_info().map_err(creating)? != parent.public_info {
                    let error = "x509: provided PrivateKey doesn't match parent's PublicKey";
                    return Err(creating(error.to_owned()));
                }
                // A certificate that names itself as issuer carries no authority.
                let authority_id = parent.key_id.clone().filter(|_| parent.subject != self.subject);
                (parent.subject.as_slice(), authority_id, signer)
            }
        };
        let algorithm = signer.signature_algorithm().map_err(creating)?;
        let body = sequence(&[
            &element(0xa0, &integer(&[2])),
            &integer(&self.serial),
            &algorithm,
            issuer,
            &sequence(&[&time(self.not_before), &time(self.not_after)]),
            &self.subject,
            &public_info,
            &element(0xa3, &self.extensions(&public_info, authority_id)),
        ]);
        let signature = signer.sign(&body).map_err(creating)?;
        let whole = sequence(&[&body, &algorithm, &bit_string(&signature, 0)]);
        Ok(Value::object(Certificate { cert: der::pem("CERTIFICATE", &whole), key: key.pem() }))
    }

    fn extensions(&self, public_info: &[u8], authority_id: Option<Vec<u8>>) -> Vec<u8> {
        // Digital signature and key encipherment; for an authority also the signing of certificates.
        let usage = if self.is_authority { bit_string(&[0xa4], 2) } else { bit_string(&[0xa0], 5) };
        let is_ca: &[u8] = if self.is_authority { &[1, 1, 0xff] } else { &[] };
        let mut all = extension(KEY_USAGE, true, &usage);
        all.extend(extension(EXT_KEY_USAGE, false, &sequence(&[&oid(SERVER_AUTH), &oid(CLIENT_AUTH)])));
        all.extend(extension(BASIC_CONSTRAINTS, true, &sequence(&[is_ca])));
        if self.is_authority {
            let id = key_identifier(public_info);
            all.extend(extension(SUBJECT_KEY_ID, false, &element(der::OCTET_STRING, &id)));
        }
        if let Some(id) = authority_id {
            all.extend(extension(AUTHORITY_KEY_ID, false, &sequence(&[&element(0x80, &id)])));
        }
        let names = self.alternative_names();
        if !names.is_empty() {
            let subject_is_empty = self.subject == sequence(&[]);
            all.extend(extension(SUBJECT_ALT_NAME, subject_is_empty, &element(der::SEQUENCE, &names)));
        }
        element(der::SEQUENCE, &all)
    }

    fn alternative_names(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.names.iter().flat_map(|name| element(0x82, name)).collect();
        for address in &self.addresses {
            out.extend(match address {
                IpAddr::V4(address) => element(0x87, &address.octets()),
                IpAddr::V6(address) => element(0x87, &address.octets()),
            });
        }
        out
    }
}

/// The first 160 bits of the SHA-256 of the public key, as RFC 7093 has it and Go since 1.25.
fn key_identifier(public_info: &[u8]) -> Vec<u8> {
    let bits = der::read(public_info)
        .and_then(|info| {
            der::read_all(info.content).and_then(|parts| parts.last().map(|bits| bits.content.to_vec()))
        })
        .unwrap_or_default();
    Sha256::digest(bits.get(1..).unwrap_or_default())[..20].to_vec()
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    sequence(&[&oid(id), critical, &element(der::OCTET_STRING, value)])
}

/// A name with nothing but a common name, or nothing at all.
fn subject(name: &[u8]) -> Vec<u8> {
    if name.is_empty() {
        return sequence(&[]);
    }
    let printable = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(byte);
    let tag = if name.iter().all(printable) { 0x13 } else { 0x0c };
    let attribute = sequence(&[&oid(COMMON_NAME), &element(tag, name)]);
    sequence(&[&der::set(&attribute)])
}

/// Two digits of a year until 2050, four from then on.
fn time(at: Timestamp) -> Vec<u8> {
    let civil = Offset::UTC.to_datetime(at);
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    match civil.year() {
        year @ 1950..2050 => element(0x17, format!("{:02}{rest}", year % 100).as_bytes()),
        year => element(0x18, format!("{year:04}{rest}").as_bytes()),
    }
}

fn address(value: &Value) -> Result<IpAddr, Failure> {
    let Value::String(text) = value else {
        return Err(Failure::new(format!("error parsing ip: {} is not a string", fmt::show(value))));
    };
    let text = text.to_lossy();
    text.parse().map_err(|_| Failure::new(format!("error parsing ip: {text}")))
}

fn dns_name(value: &Value) -> Result<Vec<u8>, Failure> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        other => Err(Failure::new(format!(
            "error processing alternate dns name: {} is not a string",
            fmt::show(other)
        ))),
    }
}
