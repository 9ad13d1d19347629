//! `urlParse` and `urlJoin`, with the rules of Go's net/url.

use super::{Answer, map_arg, string, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::strconv;
use crate::value::{Map, Type, Value};

pub const FUNCTIONS: &[Function] = &[
    Function::new("urlParse", &[Type::String], url_parse),
    Function::new("urlJoin", &[Type::MAP], url_join),
];

/// The part of a URL some text is for: each has its own reserved characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    UserPassword,
    Fragment,
}

#[derive(Default)]
struct Url {
    scheme: Vec<u8>,
    opaque: Vec<u8>,
    /// Name, and password if there is one.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    host: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    fragment: Vec<u8>,
}

fn should_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
        return false;
    }
    let host_allows = b"!$&'()*+,;=:[]<>\"".contains(&byte);
    match part {
        Part::Host | Part::Zone if host_allows => false,
        Part::Path => !b"$&+,/:;=@".contains(&byte),
        Part::UserPassword => !b"$&+,;=".contains(&byte),
        Part::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
        Part::Host | Part::Zone => true,
    }
}

fn escape(text: &[u8], part: Part) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if should_escape(byte, part) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
    out
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let bad = |escape: &[u8]| format!("invalid URL escape {}", strconv::quote(escape));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte != b'%' {
            if matches!(part, Part::Host | Part::Zone) && byte < 0x80 && should_escape(byte, part) {
                return Err(format!("invalid character {} in host name", strconv::quote(&[byte])));
            }
            out.push(byte);
            at += 1;
            continue;
        }
        let digits = text.get(at + 1).copied().and_then(hex).zip(text.get(at + 2).copied().and_then(hex));
        let Some((high, low)) = digits else { return Err(bad(&text[at..text.len().min(at + 3)])) };
        let escape = &text[at..at + 3];
        let value = high << 4 | low;
        if part == Part::Host && high < 8 && escape != b"%25" {
            return Err(bad(escape));
        }
        if part == Part::Zone && escape != b"%25" && value != b' ' && should_escape(value, Part::Host) {
            return Err(bad(escape));
        }
        out.push(value);
        at += 3;
    }
    Ok(out)
}

/// The text before and after the first occurrence of a byte.
fn cut(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&found| found == byte) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn parse(text: &[u8]) -> Result<Url, String> {
    let complain = |shown: &[u8], error: String| format!("parse {}: {error}", strconv::quote(shown));
    let (before, fragment) = cut(text, b'#');
    let mut url = parse_before_fragment(before).map_err(|error| complain(before, error))?;
    if let Some(fragment) = fragment {
        url.fragment = unescape(fragment, Part::Fragment).map_err(|error| complain(text, error))?;
    }
    Ok(url)
}

fn parse_before_fragment(text: &[u8]) -> Result<Url, String> {
    if text.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let mut url = Url::default();
    if text == b"*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = cut(rest, b'?');
    url.query = query.unwrap_or_default().to_vec();
    let mut rest = rest;
    if !rest.starts_with(b"/") {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_vec();
            return Ok(url);
        }
        if cut(rest, b'/').0.contains(&b':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if rest.starts_with(b"//") && (!url.scheme.is_empty() || !rest.starts_with(b"///")) {
        let authority = &rest[2..];
        let end = authority.iter().position(|&byte| byte == b'/').unwrap_or(authority.len());
        rest = &authority[end..];
        parse_authority(&mut url, &authority[..end])?;
    }
    url.path = unescape(rest, Part::Path)?;
    Ok(url)
}

fn scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok((b"", text))
}

fn parse_authority(url: &mut Url, authority: &[u8]) -> Result<(), String> {
    let at = authority.iter().rposition(|&byte| byte == b'@');
    url.host = parse_host(&url.scheme, &authority[at.map_or(0, |at| at + 1)..])?;
    let Some(at) = at else { return Ok(()) };
    let user = &authority[..at];
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    if !user.iter().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = cut(user, b':');
    let password = password.map(|password| unescape(password, Part::UserPassword));
    url.user = Some((unescape(name, Part::UserPassword)?, password.transpose()?));
    Ok(())
}

fn parse_host(scheme: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    match host.iter().rposition(|&byte| byte == b'[') {
        Some(0) => return parse_bracketed(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let Some(first) = host.iter().position(|&byte| byte == b':') {
        let last = host.iter().rposition(|&byte| byte == b':').unwrap_or(first);
        // Only http is strict about a second colon.
        let colon = if matches!(scheme, b"http" | b"https") { first } else { last };
        check_port(&host[colon..])?;
    }
    unescape(host, Part::Host)
}

fn parse_bracketed(host: &[u8]) -> Result<Vec<u8>, String> {
    let close = host.iter().rposition(|&byte| byte == b']').ok_or("missing ']' in host")?;
    check_port(&host[close + 1..])?;
    let port = unescape(&host[close + 1..], Part::Host)?;
    let name = &host[1..close];
    let name = match super::text::find(name, b"%25") {
        Some(zone) => {
            let mut whole = unescape(&name[..zone], Part::Host)?;
            whole.extend(unescape(&name[zone..], Part::Zone)?);
            whole
        }
        None => unescape(name, Part::Host)?,
    };
    check_address(&name)?;
    Ok([b"[", name.as_slice(), b"]", &port].concat())
}

fn check_port(port: &[u8]) -> Result<(), String> {
    let valid = port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit);
    if valid { Ok(()) } else { Err(format!("invalid port {} after host", strconv::quote(port))) }
}

/// An IPv6 address, perhaps with a zone.
fn check_address(text: &[u8]) -> Result<(), String> {
    let shown = String::from_utf8_lossy(text).into_owned();
    let address = shown.split('%').next().unwrap_or_default();
    if address.parse::<std::net::Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => {
            let quoted = strconv::quote(text);
            Err(format!("invalid host: ParseAddr({quoted}): unable to parse IP"))
        }
    }
}

/// The host without its port and brackets.
fn hostname(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let without_port = match colon {
        Some(colon) if check_port(&host[colon..]).is_ok() => &host[..colon],
        _ => host,
    };
    match without_port {
        [b'[', inner @ .., b']'] => inner,
        plain => plain,
    }
}

fn user_text(user: &(Vec<u8>, Option<Vec<u8>>)) -> Vec<u8> {
    let mut out = escape(&user.0, Part::UserPassword);
    if let Some(password) = &user.1 {
        out.push(b':');
        out.extend(escape(password, Part::UserPassword));
    }
    out
}

fn url_parse(_: &Context<'_>, args: &[Value]) -> Answer {
    let url =
        parse(text_arg(args, 0)).map_err(|error| Failure::new(format!("unable to parse url: {error}")))?;
    let text = |bytes: &[u8]| Value::String(bytes.into());
    Ok(Value::map([
        ("scheme", text(&url.scheme)),
        ("host", text(&url.host)),
        ("hostname", text(hostname(&url.host))),
        ("path", text(&url.path)),
        ("query", text(&url.query)),
        ("opaque", text(&url.opaque)),
        ("fragment", text(&url.fragment)),
        ("userinfo", text(&url.user.as_ref().map(user_text).unwrap_or_default())),
    ]))
}

fn entry(map: Option<&Map>, key: &str) -> Result<Vec<u8>, Failure> {
    match map.and_then(|map| map.get(key)) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(value) if value.is_nil() => Err(Failure::new(super::NIL_DEREFERENCE)),
        Some(other) => Err(Failure::new(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            other.kind().name()
        ))),
    }
}

fn url_join(_: &Context<'_>, args: &[Value]) -> Answer {
    let map = map_arg(args, 0);
    let mut url = Url {
        scheme: entry(map, "scheme")?,
        host: entry(map, "host")?,
        path: entry(map, "path")?,
        query: entry(map, "query")?,
        opaque: entry(map, "opaque")?,
        fragment: entry(map, "fragment")?,
        user: None,
    };
    let user = entry(map, "userinfo")?;
    if !user.is_empty() {
        let text = [b"proto://", user.as_slice(), b"@host"].concat();
        let parsed = parse(&text)
            .map_err(|error| Failure::new(format!("unable to parse userinfo in dict: {error}")))?;
        url.user = parsed.user;
    }
    string(show(&url))
}

fn show(url: &Url) -> Vec<u8> {
    let mut out = Vec::new();
    if !url.scheme.is_empty() {
        out.extend_from_slice(&url.scheme);
        out.push(b':');
    }
    if !url.opaque.is_empty() {
        out.extend_from_slice(&url.opaque);
    } else {
        show_authority_and_path(url, &mut out);
    }
    if !url.query.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&url.query);
    }
    if !url.fragment.is_empty() {
        out.push(b'#');
        out.extend(escape(&url.fragment, Part::Fragment));
    }
    out
}

fn show_authority_and_path(url: &Url, out: &mut Vec<u8>) {
    if !url.host.is_empty() || url.user.is_some() || !url.scheme.is_empty() && !url.path.is_empty() {
        out.extend_from_slice(b"//");
    }
    if let Some(user) = &url.user {
        out.extend(user_text(user));
        out.push(b'@');
    }
    out.extend(escape(&url.host, Part::Host));
    let path = if url.path == b"*" { url.path.clone() } else { escape(&url.path, Part::Path) };
    if !path.is_empty() && path[0] != b'/' && !url.host.is_empty() {
        out.push(b'/');
    }
    if out.is_empty() && cut(&path, b'/').0.contains(&b':') {
        out.extend_from_slice(b"./");
    }
    out.extend(path);
}
