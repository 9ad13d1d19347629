//! Numbers, strings and padding: the leaves of Go's fmt.

use super::printer::Printer;
use crate::strconv;
use crate::unicode::{is_print, push_rune, rune_count, runes};

const LOWER: &[u8; 17] = b"0123456789abcdefx";
const UPPER: &[u8; 17] = b"0123456789ABCDEFX";

/// Flags, width and precision of one verb.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    pub width: Option<usize>,
    pub precision: Option<usize>,
    pub minus: bool,
    pub plus: bool,
    pub sharp: bool,
    pub space: bool,
    pub zero: bool,
    /// `%+v`, which names the fields of structs.
    pub plus_v: bool,
    /// `%#v`, which writes Go syntax.
    pub sharp_v: bool,
}

/// An integer with its sign apart.
#[derive(Clone, Copy)]
pub struct Integer {
    pub negative: bool,
    pub magnitude: u64,
    pub signed: bool,
}

impl Integer {
    pub fn signed(value: i64) -> Self {
        Self { negative: value < 0, magnitude: value.unsigned_abs(), signed: true }
    }

    pub fn unsigned(value: u64) -> Self {
        Self { negative: false, magnitude: value, signed: false }
    }

    /// The bits, as Go's conversion to uint64 gives them.
    fn bits(self) -> u64 {
        if self.negative { self.magnitude.wrapping_neg() } else { self.magnitude }
    }
}

impl Printer {
    fn padding(&mut self, count: usize) {
        let byte = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
        self.buffer.resize(self.buffer.len() + count, byte);
    }

    pub fn pad(&mut self, text: &[u8]) {
        let Some(width) = self.flags.width else { return self.buffer.extend_from_slice(text) };
        let missing = width.saturating_sub(rune_count(text));
        if self.flags.minus {
            self.buffer.extend_from_slice(text);
            self.padding(missing);
        } else {
            self.padding(missing);
            self.buffer.extend_from_slice(text);
        }
    }

    /// Pads with spaces only.
    fn pad_plain(&mut self, text: &[u8]) {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(text);
        self.flags.zero = zero;
    }

    /// An integer by verb; `false` if integers do not have it.
    pub fn integer(&mut self, value: Integer, verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v && !value.signed => self.hex_with_prefix(value, true),
            'v' | 'd' => self.digits(value, 10, verb, LOWER),
            'b' => self.digits(value, 2, verb, LOWER),
            'o' | 'O' => self.digits(value, 8, verb, LOWER),
            'x' => self.digits(value, 16, verb, LOWER),
            'X' => self.digits(value, 16, verb, UPPER),
            'c' => self.character(value.bits()),
            'q' => self.quoted_character(value.bits()),
            'U' => self.code_point(value.bits()),
            _ => return false,
        }
        true
    }

    pub fn hex_with_prefix(&mut self, value: Integer, prefix: bool) {
        let sharp = std::mem::replace(&mut self.flags.sharp, prefix);
        self.digits(value, 16, 'v', LOWER);
        self.flags.sharp = sharp;
    }

    fn digits(&mut self, value: Integer, base: u64, verb: char, symbols: &[u8; 17]) {
        let flags = self.flags;
        let mut least = 0;
        if let Some(precision) = flags.precision {
            least = precision;
            if precision == 0 && value.magnitude == 0 {
                // Nothing at all, only the width.
                return self.pad_plain(b"");
            }
        } else if let (true, false, Some(width)) = (flags.zero, flags.minus, flags.width) {
            // Zero padding becomes precision, with room for the sign.
            least = width;
            if value.negative || flags.plus || flags.space {
                least = least.saturating_sub(1);
            }
        }
        let mut reversed = Vec::with_capacity(68);
        let mut rest = value.magnitude;
        loop {
            reversed.push(symbols[(rest % base) as usize]);
            rest /= base;
            if rest == 0 {
                break;
            }
        }
        if reversed.len() < least {
            reversed.resize(least, b'0');
        }
        if flags.sharp {
            match base {
                2 => reversed.extend_from_slice(b"b0"),
                8 if reversed.last() != Some(&b'0') => reversed.push(b'0'),
                16 => reversed.extend_from_slice(&[symbols[16], b'0']),
                _ => {}
            }
        }
        if verb == 'O' {
            reversed.extend_from_slice(b"o0");
        }
        if value.negative {
            reversed.push(b'-');
        } else if flags.plus {
            reversed.push(b'+');
        } else if flags.space {
            reversed.push(b' ');
        }
        reversed.reverse();
        self.pad_plain(&reversed);
    }

    fn character(&mut self, code: u64) {
        let mut text = Vec::with_capacity(4);
        push_rune(&mut text, u32::try_from(code).unwrap_or(u32::MAX));
        self.pad(&text);
    }

    fn quoted_character(&mut self, code: u64) {
        let code = u32::try_from(code).unwrap_or(u32::MAX);
        let text = match self.flags.plus {
            true => strconv::quote_rune_to_ascii(code),
            false => strconv::quote_rune(code),
        };
        self.pad(text.as_bytes());
    }

    fn code_point(&mut self, code: u64) {
        let least = self.flags.precision.unwrap_or(4).max(4);
        let mut text = format!("U+{code:0least$X}");
        if self.flags.sharp
            && let Some(shown) = u32::try_from(code).ok().and_then(char::from_u32)
            && is_print(shown)
        {
            text.push_str(&format!(" '{shown}'"));
        }
        self.pad_plain(text.as_bytes());
    }

    pub fn boolean(&mut self, value: bool, verb: char) -> bool {
        if !matches!(verb, 't' | 'v') {
            return false;
        }
        self.pad(if value { b"true" } else { b"false" });
        true
    }

    /// A string by verb; `false` if strings do not have it.
    pub fn string(&mut self, text: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.plain(text),
            'x' => self.hex(text, LOWER),
            'X' => self.hex(text, UPPER),
            'q' => self.quoted(text),
            _ => return false,
        }
        true
    }

    pub fn plain(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        self.pad(text);
    }

    fn truncated<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(most) = self.flags.precision else { return text };
        match runes(text).nth(most) {
            Some((at, _, _)) => &text[..at],
            None => text,
        }
    }

    pub fn quoted(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        if self.flags.sharp && strconv::can_backquote(text) {
            return self.pad(&[b"`", text, b"`"].concat());
        }
        let quoted = match self.flags.plus {
            true => strconv::quote_to_ascii(text),
            false => strconv::quote(text),
        };
        self.pad(quoted.as_bytes());
    }

    pub fn hex_lower(&mut self, text: &[u8]) {
        self.hex(text, LOWER);
    }

    pub fn hex_upper(&mut self, text: &[u8]) {
        self.hex(text, UPPER);
    }

    fn hex(&mut self, text: &[u8], symbols: &[u8; 17]) {
        let flags = self.flags;
        let text = &text[..flags.precision.unwrap_or(text.len()).min(text.len())];
        let mut out = Vec::with_capacity(text.len() * 2 + 2);
        for (at, byte) in text.iter().enumerate() {
            if flags.space && at > 0 {
                out.push(b' ');
            }
            if flags.sharp && (flags.space || at == 0) {
                out.extend_from_slice(&[b'0', symbols[16]]);
            }
            out.extend_from_slice(&[symbols[(byte >> 4) as usize], symbols[(byte & 15) as usize]]);
        }
        self.pad(&out);
    }

    /// A float by verb; `false` if floats do not have it.
    pub fn float(&mut self, value: f64, verb: char) -> bool {
        let (letter, precision) = match verb {
            'v' => (b'g', -1),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb as u8, -1),
            'f' | 'e' | 'E' => (verb as u8, 6),
            'F' => (b'f', 6),
            _ => return false,
        };
        self.float_as(value, letter, precision);
        true
    }

    fn float_as(&mut self, value: f64, verb: u8, precision: i32) {
        let flags = self.flags;
        let precision = flags.precision.map_or(precision, |precision| precision as i32);
        // The sign always comes first here, and is dropped again where it is not wanted.
        let mut number = vec![b'+'];
        strconv::append_float(&mut number, value, verb, precision);
        if matches!(number[1], b'-' | b'+') {
            number.remove(0);
        }
        if flags.space && number[0] == b'+' && !flags.plus {
            number[0] = b' ';
        }
        if matches!(number[1], b'I' | b'N') {
            if number[1] == b'N' && !flags.space && !flags.plus {
                number.remove(0);
            }
            return self.pad_plain(&number);
        }
        if flags.sharp && verb != b'b' {
            number = with_point(number, verb, precision);
        }
        if !flags.plus && number[0] == b'+' {
            return self.pad(&number[1..]);
        }
        match flags.width {
            Some(width) if flags.zero && !flags.minus && width > number.len() => {
                self.buffer.push(number[0]);
                self.padding(width - number.len());
                self.buffer.extend_from_slice(&number[1..]);
            }
            _ => self.pad(&number),
        }
    }

    /// A complex number by verb; `false` if they do not have it.
    pub fn complex(&mut self, (real, imaginary): (f64, f64), verb: char) -> bool {
        if !matches!(verb, 'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E') {
            return false;
        }
        let plus = self.flags.plus;
        self.buffer.push(b'(');
        self.float(real, verb);
        self.flags.plus = true;
        self.float(imaginary, verb);
        self.buffer.extend_from_slice(b"i)");
        self.flags.plus = plus;
        true
    }
}

/// `%#g` and the like: a decimal point is always there, and trailing zeros stay.
fn with_point(number: Vec<u8>, verb: u8, precision: i32) -> Vec<u8> {
    let mut digits = match verb {
        b'v' | b'g' | b'G' | b'x' => {
            if precision == -1 {
                6
            } else {
                precision
            }
        }
        _ => 0,
    };
    let is_hex = matches!(verb, b'x' | b'X');
    let split = number
        .iter()
        .position(|&byte| matches!(byte, b'p' | b'P') || (!is_hex && matches!(byte, b'e' | b'E')))
        .unwrap_or(number.len());
    let (body, tail) = number.split_at(split);
    let mut out = body.to_vec();
    let mut has_point = false;
    let mut seen = false;
    for &byte in &body[1..] {
        if byte == b'.' {
            has_point = true;
            continue;
        }
        seen |= byte != b'0';
        if seen {
            digits -= 1;
        }
    }
    if !has_point {
        if body.len() == 2 && body[1] == b'0' {
            digits -= 1;
        }
        out.push(b'.');
    }
    out.resize(out.len() + digits.max(0) as usize, b'0');
    out.extend_from_slice(tail);
    out
}
