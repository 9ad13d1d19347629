//! Go's `time.ParseDuration`.

/// Nanoseconds of a text such as `-1.5h30m`; nothing when it is no duration.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    let mut rest = rest;
    while !rest.is_empty() {
        let (value, after) = term(rest)?;
        total = total.checked_add(value)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn term(text: &str) -> Option<(i128, &str)> {
    let whole_end = text.bytes().take_while(u8::is_ascii_digit).count();
    let fraction_end = match text[whole_end..].strip_prefix('.') {
        Some(rest) => whole_end + 1 + rest.bytes().take_while(u8::is_ascii_digit).count(),
        None => whole_end,
    };
    let digits = fraction_end - whole_end.min(fraction_end);
    if whole_end == 0 && digits <= 1 {
        return None;
    }
    let unit_end =
        fraction_end + text[fraction_end..].bytes().take_while(|b| *b != b'.' && !b.is_ascii_digit()).count();
    let unit: i128 = match &text[fraction_end..unit_end] {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: i128 = if whole_end == 0 { 0 } else { text[..whole_end].parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in text[whole_end..fraction_end].bytes().skip(1) {
        scale /= 10;
        value += i128::from(digit - b'0') * scale;
    }
    Some((value, &text[unit_end..]))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn follows_go() {
        assert_eq!(parse("1h2m3s"), Some(3_723_000_000_000));
        assert_eq!(parse("-1.5h"), Some(-5_400_000_000_000));
        assert_eq!(parse("2.5"), None);
        assert_eq!(parse(".5s"), Some(500_000_000));
        assert_eq!(parse("1µs"), Some(1_000));
        for wrong in ["", "-", "s", ".", ".s", "1x", "1h1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
