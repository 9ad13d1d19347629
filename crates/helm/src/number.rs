//! Numbers as Go's strconv prints them, where Helm shows them outside of templates.

/// `FormatFloat(value, 'g', -1, 32)`.
pub(crate) fn format_g32(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go rounds to 32 bits here, too")]
    let narrow = value as f32;
    shortest(&format!("{narrow:e}"), 21)
}

/// What `fmt.Sprint` makes of a float64.
pub(crate) fn format_v(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    shortest(&format!("{value:e}"), 21)
}

/// Rust's shortest `1.25e-7` in Go's `%g` shape: an exponent below -4 or from `limit` on.
fn shortest(scientific: &str, limit: i32) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..limit).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_go() {
        for (value, expected) in [
            (1.0, "1"),
            (-5.0, "-5"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e-5, "1e-05"),
        ] {
            assert_eq!(format_v(value), expected);
        }
        assert_eq!(format_g32(1.1), "1.1");
    }
}
