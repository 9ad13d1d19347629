//! IP addresses, CIDR ranges and URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::EvalError;
use crate::eval::Answer;
use crate::value::{Key, Value};

/// A range of addresses; the address keeps its host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_ip(address)?;
        let plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 =
            prefix.parse().ok().filter(|_| plain && (prefix == "0" || !prefix.starts_with('0')))?;
        (prefix <= width(address)).then_some(Cidr { address, prefix })
    }

    fn masked(self) -> Self {
        Cidr { address: mask(self.address, self.prefix), prefix: self.prefix }
    }

    fn contains(self, address: IpAddr) -> bool {
        width(address) == width(self.address) && mask(address, self.prefix) == mask(self.address, self.prefix)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// Kubernetes takes no IPv4 address in IPv6 clothes.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

fn ip(text: &str) -> Result<IpAddr, EvalError> {
    if text.parse::<Ipv6Addr>().is_ok_and(|address| address.to_ipv4_mapped().is_some()) {
        return Err(EvalError::message(format!("IPv4-mapped IPv6 address {text:?} is not allowed")));
    }
    parse_ip(text).ok_or_else(|| EvalError::message(not_an_ip(text)))
}

/// Go's reason, as far as it is worth telling apart.
fn not_an_ip(text: &str) -> String {
    let zero = |octet: &str| {
        octet.len() > 1 && octet.starts_with('0') && octet.bytes().all(|byte| byte.is_ascii_digit())
    };
    let reason = if !text.contains(':') && text.split('.').any(zero) {
        "IPv4 field has octet with leading zero"
    } else {
        "unable to parse IP"
    };
    format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {reason}")
}

pub(super) fn call<'a>(name: &str, is_method: bool, values: &[Value<'a>]) -> Option<Answer<'a>> {
    match (name, is_method, values) {
        ("ip", false, [Value::String(text)]) => Some(ip(text.as_str()).map(Value::Ip)),
        ("isIP", false, [Value::String(text)]) => Some(Ok(Value::Bool(parse_ip(text.as_str()).is_some()))),
        ("ip.isCanonical", false, [Value::String(text)]) => Some(
            parse_ip(text.as_str())
                .map(|address| Value::Bool(address.to_string() == text.as_str()))
                .ok_or_else(|| {
                    EvalError::message(format!(
                        "IP Address {:?} parse error during conversion from string",
                        text.as_str()
                    ))
                }),
        ),
        ("cidr", false, [Value::String(text)]) => {
            Some(Cidr::parse(text.as_str()).map(Value::Cidr).ok_or_else(|| {
                EvalError::message(format!(
                    "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix({:?}): no valid prefix",
                    text.as_str()
                ))
            }))
        }
        ("isCIDR", false, [Value::String(text)]) => {
            Some(Ok(Value::Bool(Cidr::parse(text.as_str()).is_some())))
        }
        ("url", false, [Value::String(text)]) => {
            Some(Url::parse(text.as_str()).map(|url| Value::Url(Arc::new(url))).ok_or_else(|| {
                EvalError::message(format!(
                    "URL parse error during conversion from string: parse {:?}: invalid URI for request",
                    text.as_str()
                ))
            }))
        }
        ("isURL", false, [Value::String(text)]) => Some(Ok(Value::Bool(Url::parse(text.as_str()).is_some()))),
        (_, true, [Value::Ip(address)]) => ip_method(name, *address).map(Ok),
        (_, true, [Value::Cidr(cidr), args @ ..]) => cidr_method(name, *cidr, args),
        (_, true, [Value::Url(url)]) => url_method(name, url).map(Ok),
        _ => None,
    }
}

fn ip_method<'a>(name: &str, address: IpAddr) -> Option<Value<'a>> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    let link_local_multicast = match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    };
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    Some(match name {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(link_local_multicast),
        "isLinkLocalUnicast" => Value::Bool(link_local),
        "isGlobalUnicast" => Value::Bool(
            !broadcast
                && !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && !link_local,
        ),
        _ => return None,
    })
}

fn cidr_method<'a>(name: &str, cidr: Cidr, args: &[Value<'a>]) -> Option<Answer<'a>> {
    let parse = |text: &str, what: &str| {
        EvalError::message(format!("{what} {text:?} parse error during conversion from string"))
    };
    Some(match (name, args) {
        ("ip", []) => Ok(Value::Ip(cidr.address)),
        ("masked", []) => Ok(Value::Cidr(cidr.masked())),
        ("prefixLength", []) => Ok(Value::Int(cidr.prefix.into())),
        ("containsIP", [Value::Ip(address)]) => Ok(Value::Bool(cidr.contains(*address))),
        ("containsIP", [Value::String(text)]) => parse_ip(text.as_str())
            .map(|address| Value::Bool(cidr.contains(address)))
            .ok_or_else(|| parse(text.as_str(), "IP Address")),
        ("containsCIDR", [Value::Cidr(other)]) => {
            Ok(Value::Bool(other.prefix >= cidr.prefix && cidr.contains(other.address)))
        }
        ("containsCIDR", [Value::String(text)]) => Cidr::parse(text.as_str())
            .map(|other| Value::Bool(other.prefix >= cidr.prefix && cidr.contains(other.address)))
            .ok_or_else(|| parse(text.as_str(), "network address")),
        _ => return None,
    })
}

/// A URL as Go's `ParseRequestURI` takes it: absolute, or an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    text: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty()
            || text.contains(|character: char| character.is_whitespace() || character.is_control())
        {
            return None;
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ if text.starts_with('/') => (String::new(), text),
            _ => return None,
        };
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match before.strip_prefix("//") {
            Some(authority) if !scheme.is_empty() => {
                let end = authority.find('/').unwrap_or(authority.len());
                authority.split_at(end)
            }
            _ => ("", before),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        // Something must follow the scheme: a host, or an absolute path.
        if host.is_empty() && !path.starts_with('/') && !scheme.is_empty() && !before.starts_with("//") {
            return None;
        }
        if !well_escaped(path) || !is_host(host) {
            return None;
        }
        Some(Url { scheme, host: host.into(), path: path.into(), query: query.into(), text: text.into() })
    }

    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(""),
            None => self.host.split(':').next().unwrap_or(""),
        }
    }

    fn port(&self) -> &str {
        let after = self.host.rsplit(']').next().unwrap_or("");
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

pub(super) fn is_url(text: &str) -> bool {
    Url::parse(text).is_some()
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn is_host(host: &str) -> bool {
    let port = host.rsplit(']').next().unwrap_or("").split_once(':').map_or("", |(_, port)| port);
    port.bytes().all(|byte| byte.is_ascii_digit()) && host.starts_with('[') == host.contains(']')
}

fn well_escaped(path: &str) -> bool {
    path.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

fn unescape(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn url_method<'a>(name: &str, url: &Url) -> Option<Value<'a>> {
    Some(match name {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.path.as_str()),
        "getQuery" => {
            let mut query: BTreeMap<Key, Vec<Value<'a>>> = BTreeMap::new();
            for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                query
                    .entry(Key::String(unescape(key).into()))
                    .or_default()
                    .push(Value::text(unescape(value)));
            }
            Value::map(query.into_iter().map(|(key, values)| (key, Value::list(values))).collect())
        }
        _ => return None,
    })
}
