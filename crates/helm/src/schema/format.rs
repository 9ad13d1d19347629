//! The formats Helm checks, with the reasons it gives.

use crate::quote::go_quote;

/// Whether a string has the format; formats nobody knows accept everything.
pub(super) fn check(format: &str, text: &str) -> Result<(), String> {
    match format {
        "regex" => regex::Regex::new(text).map(drop).map_err(|e| {
            format!("error parsing regexp: {}", e.to_string().lines().last().unwrap_or_default())
        }),
        "json-pointer" => json_pointer(text),
        "relative-json-pointer" => relative_json_pointer(text),
        "uuid" => uuid(text),
        "duration" => duration(text),
        "period" => period(text),
        "ipv4" => ipv4(text),
        "ipv6" => ipv6(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "date" => date(text),
        "time" => time(text),
        "date-time" => date_time(text),
        "uri" | "iri" => uri(text, true),
        "uri-reference" | "iri-reference" => uri_reference(text),
        "uri-template" => uri_template(text),
        "semver" => semver(text),
        _ => Ok(()),
    }
}

fn fail<T>(why: impl Into<String>) -> Result<T, String> {
    Err(why.into())
}

fn json_pointer(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let Some(rest) = text.strip_prefix('/') else { return fail("not starting with /") };
    for token in rest.split('/') {
        let mut chars = token.chars();
        while let Some(c) = chars.next() {
            if c == '~' && !matches!(chars.next(), Some('0' | '1')) {
                return fail("~ must be followed by 0 or 1");
            }
        }
    }
    Ok(())
}

fn relative_json_pointer(text: &str) -> Result<(), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return fail("must start with non-negative integer");
    }
    if digits > 1 && text.starts_with('0') {
        return fail("starts with zero");
    }
    if &text[digits..] == "#" { Ok(()) } else { json_pointer(&text[digits..]) }
}

fn uuid(text: &str) -> Result<(), String> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split('-').collect();
    if groups.len() != GROUPS.len() {
        return fail("must have 5 elements");
    }
    for (index, (group, length)) in groups.iter().zip(GROUPS).enumerate() {
        if group.len() != length {
            return fail(format!("element {} must be {length} characters long", index + 1));
        }
        if let Some(c) = group.chars().find(|c| !c.is_ascii_hexdigit()) {
            return fail(format!("non-hex character {}", quoted_char(c)));
        }
    }
    Ok(())
}

fn duration(text: &str) -> Result<(), String> {
    let Some(rest) = text.strip_prefix('P') else { return fail("must start with P") };
    if rest.is_empty() {
        return fail("nothing after P");
    }
    if let Some(weeks) = rest.strip_suffix('W') {
        return match weeks {
            "" => fail("no number in week"),
            weeks if weeks.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
            _ => fail("invalid week"),
        };
    }
    const UNITS: [&str; 2] = ["YMD", "HMS"];
    for (index, part) in rest.split('T').enumerate() {
        if index != 0 && part.is_empty() {
            return fail("no time elements");
        }
        let Some(all) = UNITS.get(index) else { return fail("more than one T") };
        let mut units = *all;
        let mut part = part;
        while !part.is_empty() {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return fail("missing number");
            }
            part = &part[digits..];
            let Some(unit) = part.chars().next() else { return fail("missing unit") };
            match (units.find(unit), all.contains(unit)) {
                (Some(at), _) => units = &units[at + 1..],
                (None, true) => return fail(format!("unit {} out of order", quoted_char(unit))),
                (None, false) => return fail(format!("invalid unit {}", quoted_char(unit))),
            }
            part = &part[unit.len_utf8()..];
        }
    }
    Ok(())
}

fn period(text: &str) -> Result<(), String> {
    let Some((start, end)) = text.split_once('/') else { return fail("missing slash") };
    if start.starts_with('P') {
        duration(start).map_err(|e| format!("invalid start duration: {e}"))?;
        return date_time(end).map_err(|e| format!("invalid end date-time: {e}"));
    }
    date_time(start).map_err(|e| format!("invalid start date-time: {e}"))?;
    if end.starts_with('P') {
        return duration(end).map_err(|e| format!("invalid end duration: {e}"));
    }
    date_time(end).map_err(|e| format!("invalid end date-time: {e}"))
}

fn ipv4(text: &str) -> Result<(), String> {
    let groups: Vec<&str> = text.split('.').collect();
    if groups.len() != 4 {
        return fail("expected four decimals");
    }
    for group in groups {
        if group.len() > 1 && group.starts_with('0') {
            return fail("leading zeros");
        }
        let number: i64 = atoi(group)?;
        if !(0..=255).contains(&number) {
            return fail("decimal must be between 0 and 255");
        }
    }
    Ok(())
}

fn atoi(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("strconv.Atoi: parsing {}: invalid syntax", go_quote(text)));
    }
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: value out of range", go_quote(text)))
}

fn ipv6(text: &str) -> Result<(), String> {
    if !text.contains(':') {
        return fail("missing colon");
    }
    if text.contains('%') {
        return fail("zone id is not a part of ipv6 address");
    }
    text.parse::<std::net::Ipv6Addr>()
        .map(drop)
        .map_err(|_| format!("ParseAddr({}): unexpected character", go_quote(text)))
}

fn hostname(text: &str) -> Result<(), String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.len() > 253 {
        return fail("more than 253 characters long");
    }
    for label in text.split('.') {
        if label.is_empty() || label.len() > 63 {
            return fail("label must be 1 to 63 characters long");
        }
        if label.starts_with('-') {
            return fail("label starts with hyphen");
        }
        if label.ends_with('-') {
            return fail("label ends with hyphen");
        }
        if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return fail(format!("invalid character {}", quoted_char(c)));
        }
    }
    Ok(())
}

fn email(text: &str) -> Result<(), String> {
    if text.len() > 254 {
        return fail("more than 255 characters long");
    }
    let Some((local, domain)) = text.rsplit_once('@') else { return fail("missing @") };
    if local.len() > 64 {
        return fail("local part more than 64 characters long");
    }
    if local.len() > 1 && local.starts_with('"') && local.ends_with('"') {
        if local[1..local.len() - 1].contains(['\\', '"']) {
            return fail("backslash and quote are not allowed within quoted local part");
        }
    } else {
        local_part(local)?;
    }
    if let Some(address) = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
        return match address.strip_prefix("IPv6:") {
            Some(address) => ipv6(address).map_err(|e| format!("invalid ipv6 address: {e}")),
            None => ipv4(address).map_err(|e| format!("invalid ipv4 address: {e}")),
        };
    }
    hostname(domain).map_err(|e| format!("invalid domain: {e}"))
}

fn local_part(local: &str) -> Result<(), String> {
    if local.starts_with('.') {
        return fail("starts with dot");
    }
    if local.ends_with('.') {
        return fail("ends with dot");
    }
    if local.contains("..") {
        return fail("consecutive dots");
    }
    match local.chars().find(|c| !c.is_ascii_alphanumeric() && !".!#$%&'*+-/=?^_`{|}~".contains(*c)) {
        Some(c) => fail(format!("invalid character {}", quoted_char(c))),
        None => Ok(()),
    }
}

/// Go's `time.Parse("2006-01-02", …)`, with its texts.
fn date(text: &str) -> Result<(), String> {
    let cannot = |rest: &str, element: &str| {
        format!(
            "parsing time {} as \"2006-01-02\": cannot parse {} as {}",
            go_quote(text),
            go_quote(rest),
            go_quote(element)
        )
    };
    let digits =
        |from: usize, to: usize| text.get(from..to).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let rest = |from: usize| text.get(from..).unwrap_or_default();
    let year: i16 = digits(0, 4).and_then(|y| y.parse().ok()).ok_or_else(|| cannot(text, "2006"))?;
    if text.as_bytes().get(4) != Some(&b'-') {
        return Err(cannot(rest(4), "-"));
    }
    let month: i8 = digits(5, 7).and_then(|m| m.parse().ok()).ok_or_else(|| cannot(rest(5), "01"))?;
    if !(1..=12).contains(&month) {
        return Err(format!("parsing time {}: month out of range", go_quote(text)));
    }
    if text.as_bytes().get(7) != Some(&b'-') {
        return Err(cannot(rest(7), "-"));
    }
    let day: i8 = digits(8, 10).and_then(|d| d.parse().ok()).ok_or_else(|| cannot(rest(8), "02"))?;
    if text.len() > 10 {
        return Err(format!("parsing time {}: extra text: {}", go_quote(text), go_quote(rest(10))));
    }
    jiff::civil::Date::new(year, month, day)
        .map(drop)
        .map_err(|_| format!("parsing time {}: day out of range", go_quote(text)))
}

fn time(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    if bytes.len() < 9 {
        return fail("less than 9 characters long");
    }
    if bytes[2] != b':' || bytes[5] != b':' {
        return fail("missing colon in correct place");
    }
    let number = |from: usize| text.get(from..from + 2).and_then(|d| d.parse::<u32>().ok());
    let (Some(hour), Some(minute), Some(second)) = (number(0), number(3), number(6)) else {
        return fail("invalid hour/min/sec");
    };
    if hour > 23 || minute > 59 || second > 60 {
        return fail("hour/min/sec out of range");
    }
    let mut rest = text.get(8..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return fail("no digits in second fraction");
        }
        rest = &fraction[digits..];
    }
    let (hour, minute) =
        if matches!(rest, "z" | "Z") { (hour, minute) } else { without_offset(hour, minute, rest)? };
    if second >= 60 && (hour, minute) != (23, 59) {
        return fail("invalid leap second");
    }
    Ok(())
}

fn without_offset(hour: u32, minute: u32, offset: &str) -> Result<(u32, u32), String> {
    if offset.len() != 6 {
        return fail("offset must be 6 characters long");
    }
    let forward = match offset.as_bytes()[0] {
        b'+' => false,
        b'-' => true,
        _ => return fail("offset must begin with plus/minus"),
    };
    if offset.as_bytes()[3] != b':' {
        return fail("missing colon in offset in correct place");
    }
    let number = |from: usize| offset.get(from..from + 2).and_then(|d| d.parse::<u32>().ok());
    let (Some(hours), Some(minutes)) = (number(1), number(4)) else {
        return fail("invalid hour/min in offset");
    };
    if hours > 23 || minutes > 59 {
        return fail("hour/min in offset out of range");
    }
    let (at, by) = (hour * 60 + minute, hours * 60 + minutes);
    let day = 24 * 60;
    let shifted = if forward { at + by } else { (at + day - by) % day };
    Ok((shifted / 60, shifted % 60))
}

fn date_time(text: &str) -> Result<(), String> {
    if text.len() < 20 {
        return fail("less than 20 characters long");
    }
    if !matches!(text.as_bytes()[10], b't' | b'T') {
        return fail("11th character must be t or T");
    }
    date(text.get(..10).unwrap_or_default()).map_err(|e| format!("invalid date element: {e}"))?;
    time(text.get(11..).unwrap_or_default()).map_err(|e| format!("invalid time element: {e}"))
}

/// As far as Go's `url.Parse` refuses: control characters, a bad scheme, spaces in a host, a bad port or escape.
fn uri(text: &str, absolute: bool) -> Result<(), String> {
    let wrong = |why: String| Err(format!("parse {}: {why}", go_quote(text)));
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return wrong("net/url: invalid control character in URL".to_owned());
    }
    let without_fragment = text.split('#').next().unwrap_or_default();
    let scheme = without_fragment.split_once(':').map(|(s, _)| s).filter(|s| !s.contains('/'));
    match scheme {
        Some("") => return wrong("missing protocol scheme".to_owned()),
        Some(s)
            if s.starts_with(|c: char| c.is_ascii_alphabetic())
                && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => {}
        Some(_) if !without_fragment.starts_with(['/', '?']) => {
            return wrong("first path segment in URL cannot contain colon".to_owned());
        }
        Some(_) => {}
        None => {}
    }
    let rest = scheme.map_or(without_fragment, |s| &without_fragment[s.len() + 1..]);
    if let Some(rest) = rest.strip_prefix("//") {
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        if let Some(c) =
            host.chars().find(|c| matches!(c, ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}'))
        {
            return wrong(format!("invalid character {} in host name", go_quote(&c.to_string())));
        }
        let port = host.rsplit_once(':').filter(|(h, _)| !h.contains(':') || h.ends_with(']'));
        if let Some((_, port)) = port.filter(|(_, port)| !port.bytes().all(|b| b.is_ascii_digit())) {
            return wrong(format!("invalid port {} after host", go_quote(&format!(":{port}"))));
        }
    }
    escapes(text).or_else(wrong)?;
    if absolute && scheme.is_none() { fail("relative url") } else { Ok(()) }
}

fn escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let hex = text.get(at + 1..at + 3).is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        if !hex {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", go_quote(&shown)));
        }
    }
    Ok(())
}

fn uri_reference(text: &str) -> Result<(), String> {
    if text.contains('\\') {
        return fail("contains \\");
    }
    uri(text, false)
}

fn uri_template(text: &str) -> Result<(), String> {
    let mut open = false;
    for c in text.chars() {
        match (c, open) {
            ('{', false) => open = true,
            ('}', true) => open = false,
            ('{', true) | ('}', false) => return fail("nested curly braces"),
            _ => {}
        }
    }
    if open { fail("no matching closing brace") } else { Ok(()) }
}

fn semver(text: &str) -> Result<(), String> {
    semver_range::Version::strict(text).map(drop).map_err(|e| e.to_string())
}

/// Go's `%q` of a rune.
fn quoted_char(c: char) -> String {
    let quoted = go_quote(&c.to_string());
    match c {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        _ => format!("'{}'", &quoted[1..quoted.len() - 1]),
    }
}
