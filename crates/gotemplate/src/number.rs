//! Numeric constants of the template language: in how many Go types each of them fits.

use crate::lex::Kind;
use crate::node::Number;
use crate::strconv::{self, parse_float, parse_int, parse_uint};

/// Reads the text of a number token; the error is what Go says.
pub fn number(text: &str, kind: Kind) -> Result<Number, String> {
    match kind {
        Kind::CharConstant => character(text),
        Kind::Complex => complex(text),
        _ => plain(text),
    }
}

fn character(text: &str) -> Result<Number, String> {
    let (rune, _, tail) =
        strconv::unquote_char(&text.as_bytes()[1..], b'\'').ok_or_else(|| "invalid syntax".to_owned())?;
    if tail != b"'" {
        return Err(format!("malformed character constant: {text}"));
    }
    Ok(Number {
        text: text.into(),
        int: Some(i64::from(rune)),
        uint: Some(u64::from(rune)),
        float: Some(f64::from(rune)),
        complex: None,
    })
}

fn complex(text: &str) -> Result<Number, String> {
    let body = text.strip_suffix('i').ok_or("expected complex; found real")?;
    // The sign between the parts is the last one that does not belong to an exponent.
    let bytes = body.as_bytes();
    let split = (1..bytes.len())
        .rev()
        .find(|&at| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P'))
        .ok_or("syntax error scanning complex number")?;
    let part = |text: &str| {
        parse_float(text.as_bytes()).map_err(|error| {
            format!("strconv.ParseFloat: parsing {}: {error}", strconv::quote(text.as_bytes()))
        })
    };
    Ok(simplified(text, part(&body[..split])?, part(&body[split..])?))
}

fn simplified(text: &str, real: f64, imaginary: f64) -> Number {
    let mut number =
        Number { text: text.into(), int: None, uint: None, float: None, complex: Some((real, imaginary)) };
    if imaginary == 0.0 {
        number.float = Some(real);
        number.int = whole_int(real);
        number.uint = whole_uint(real);
    }
    number
}

fn plain(text: &str) -> Result<Number, String> {
    if let Some(imaginary) = text.strip_suffix('i')
        && let Ok(imaginary) = parse_float(imaginary.as_bytes())
    {
        return Ok(simplified(text, 0.0, imaginary));
    }
    let int = parse_int(text.as_bytes(), 0).ok();
    let mut uint = parse_uint(text.as_bytes(), 0).ok();
    if int == Some(0) {
        uint = Some(0); // Also for -0.
    }
    let mut number = Number { text: text.into(), int, uint, float: None, complex: None };
    if let Some(int) = int {
        number.float = Some(int as f64);
    } else if let Some(uint) = uint {
        number.float = Some(uint as f64);
    } else if let Ok(float) = parse_float(text.as_bytes()) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", strconv::quote(text.as_bytes())));
        }
        number.float = Some(float);
        number.int = whole_int(float);
        number.uint = whole_uint(float);
    } else {
        return Err(format!("illegal number syntax: {}", strconv::quote(text.as_bytes())));
    }
    Ok(number)
}

fn whole_int(float: f64) -> Option<i64> {
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    (in_range && float.fract() == 0.0).then_some(float as i64)
}

fn whole_uint(float: f64) -> Option<u64> {
    let in_range = (0.0..18_446_744_073_709_551_616.0).contains(&float);
    (in_range && float.fract() == 0.0).then_some(float as u64)
}
