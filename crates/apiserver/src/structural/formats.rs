//! Formats that a CRD's schema may name. Others are ignored, as Kubernetes does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// Whether the text fits the format; unknown formats fit everything.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match name(format) {
        "uri" => is_uri(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) && !host.contains('@')
        }),
        "hostname" => text.len() <= 255 && HOSTNAME.is_match(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => MAC.is_match(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID.is_match(text) && digit(text) == Some('3'),
        "uuid4" => UUID.is_match(text) && digit(text) == Some('4') && variant(text),
        "uuid5" => UUID.is_match(text) && digit(text) == Some('5') && variant(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "hexcolor" => HEX_COLOR.is_match(text),
        "rgbcolor" => RGB_COLOR.is_match(text),
        "ssn" => SSN.is_match(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            CREDIT_CARD.is_match(&digits)
        }
        "byte" => is_base64(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "date-time" => is_date_time(text),
        "duration" => is_duration(text),
        "k8s-short-name" => text.len() <= 63 && SHORT_NAME.is_match(text),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(|part| SHORT_NAME.is_match(part)),
        _ => true,
    }
}

/// The name by which an error calls the format: spellings differ in dashes.
pub(super) fn name(format: &str) -> &str {
    match format {
        "datetime" => "date-time",
        other => other,
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant and compiles")
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
    let inner = r"[a-zA-Z0-9-\p{S}\p{L}]";
    pattern(&format!(
        r"^({letter}(-?{letter}{{0,62}})?|({letter}({inner}{{0,61}}{letter})?\.)+[a-zA-Z\p{{L}}]{{2,63}})$"
    ))
});
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){4}(?:(?:[:-][0-9a-fA-F]{2}){2})?|[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4})$",
    )
});
static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let byte = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    pattern(&format!(r"^rgb\({byte},{byte},{byte}\)$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    )
});
static SHORT_NAME: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));

fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.contains(|character: char| character.is_whitespace() || character.is_control())
    {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            && !rest.is_empty()
    })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u8>()) else { return false };
    prefix <= if address.is_ipv4() { 32 } else { 128 }
}

fn digit(uuid: &str) -> Option<char> {
    uuid.chars().filter(|character| *character != '-').nth(12)
}

fn variant(uuid: &str) -> bool {
    uuid.chars()
        .filter(|character| *character != '-')
        .nth(16)
        .is_some_and(|character| "89abAB".contains(character))
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|character| !"- ".contains(*character)).collect();
    if digits.len() != 10 {
        return false;
    }
    let value = |(place, character): (usize, &char)| match character {
        'X' if place == 9 => Some(10),
        digit => digit.to_digit(10),
    };
    let sum: Option<u32> = digits
        .iter()
        .enumerate()
        .map(|(place, digit)| Some(value((place, digit))? * (10 - place as u32)))
        .sum();
    sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|character| !"- ".contains(*character)).map(|digit| digit.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 =
            digits.iter().enumerate().map(|(place, digit)| digit * if place % 2 == 0 { 1 } else { 3 }).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// More than RFC 3339: a date with a time, with or without a zone.
fn is_date_time(text: &str) -> bool {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return true;
    }
    text.len() > 10 && text.parse::<jiff::civil::DateTime>().is_ok()
}

/// Go's `1h30m` or Scala's `22 ns`.
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
    static SCALA: LazyLock<Regex> = LazyLock::new(|| pattern(r"^((\d+)\s*([A-Za-zµ]+))$"));
    if GO.is_match(text) {
        return true;
    }
    SCALA.captures(text.trim()).is_some_and(|found| {
        let unit = found[3].to_ascii_lowercase();
        let units = [
            "ns",
            "nano",
            "nanos",
            "nanosecond",
            "nanoseconds",
            "us",
            "µs",
            "micro",
            "micros",
            "microsecond",
            "microseconds",
            "ms",
            "milli",
            "millis",
            "millisecond",
            "milliseconds",
            "s",
            "sec",
            "secs",
            "second",
            "seconds",
            "m",
            "min",
            "mins",
            "minute",
            "minutes",
            "h",
            "hr",
            "hrs",
            "hour",
            "hours",
            "d",
            "day",
            "days",
            "w",
            "wk",
            "wks",
            "week",
            "weeks",
        ];
        units.contains(&unit.as_str())
    })
}
