//! Format strings: flags, widths, argument numbers, and what Go writes when they are wrong.

use super::format::Flags;
use super::printer::Printer;
use crate::error::Limit;
use crate::unicode::decode_rune;
use crate::value::Value;

/// Widths, precisions and argument numbers beyond this are not taken for numbers.
const TOO_LARGE: i64 = 1_000_000;

struct Scan<'f> {
    format: &'f [u8],
    args: &'f [Value],
    at: usize,
    arg: usize,
    /// An argument number was used somewhere, so leftovers are not reported.
    reordered: bool,
    good_number: bool,
}

pub fn print(printer: &mut Printer, format: &[u8], args: &[Value]) -> Result<(), Limit> {
    let mut scan = Scan { format, args, at: 0, arg: 0, reordered: false, good_number: true };
    while scan.at < format.len() {
        scan.good_number = true;
        let text = &format[scan.at..];
        let plain = text.iter().position(|&byte| byte == b'%').unwrap_or(text.len());
        printer.buffer.extend_from_slice(&text[..plain]);
        scan.at += plain;
        if scan.at >= format.len() {
            break;
        }
        scan.at += 1;
        if !scan.verb(printer)? {
            break;
        }
        printer.check()?;
    }
    if !scan.reordered && scan.arg < args.len() {
        extra(printer, &args[scan.arg..])?;
    }
    Ok(())
}

fn extra(printer: &mut Printer, args: &[Value]) -> Result<(), Limit> {
    printer.flags = Flags::default();
    printer.text("%!(EXTRA ");
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            printer.text(", ");
        }
        if arg.is_nil() {
            printer.text("<nil>");
        } else {
            printer.text(&format!("{}=", arg.type_of()));
            printer.print_arg(arg, 'v')?;
        }
    }
    printer.buffer.push(b')');
    Ok(())
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    /// Everything after a `%`; `false` if the format ended within.
    fn verb(&mut self, printer: &mut Printer) -> Result<bool, Limit> {
        printer.flags = Flags::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => printer.flags.sharp = true,
                b'0' => printer.flags.zero = true,
                b'+' => printer.flags.plus = true,
                b'-' => printer.flags.minus = true,
                b' ' => printer.flags.space = true,
                _ => break,
            }
            self.at += 1;
        }
        let mut after_number = self.argument_number();
        if self.peek() == Some(b'*') {
            self.at += 1;
            self.width_argument(printer);
            after_number = false;
        } else {
            printer.flags.width = self.number().map(|number| number as usize);
            if after_number && printer.flags.width.is_some() {
                self.good_number = false;
            }
        }
        if self.at + 1 < self.format.len() && self.peek() == Some(b'.') {
            self.at += 1;
            if after_number {
                self.good_number = false;
            }
            after_number = self.precision(printer);
        }
        if !after_number {
            self.argument_number();
        }
        if self.at >= self.format.len() {
            printer.text("%!(NOVERB)");
            return Ok(false);
        }
        let (verb, length) = decode_rune(&self.format[self.at..]);
        self.at += length;
        self.operand(printer, verb)?;
        Ok(true)
    }

    fn operand(&mut self, printer: &mut Printer, verb: char) -> Result<(), Limit> {
        if verb == '%' {
            printer.buffer.push(b'%');
        } else if !self.good_number {
            printer.text(&format!("%!{verb}(BADINDEX)"));
        } else if self.arg >= self.args.len() {
            printer.text(&format!("%!{verb}(MISSING)"));
        } else {
            if matches!(verb, 'v' | 'w') {
                let flags = &mut printer.flags;
                flags.sharp_v = std::mem::take(&mut flags.sharp);
                flags.plus_v = std::mem::take(&mut flags.plus);
            }
            let arg = &self.args[self.arg];
            self.arg += 1;
            printer.print_arg(arg, verb)?;
        }
        Ok(())
    }

    fn width_argument(&mut self, printer: &mut Printer) {
        match self.int_argument() {
            Some(width) => {
                if width < 0 {
                    printer.flags.minus = true;
                    printer.flags.zero = false;
                }
                printer.flags.width = Some(width.unsigned_abs() as usize);
            }
            None => printer.text("%!(BADWIDTH)"),
        }
    }

    /// What follows a point; whether an argument number came last.
    fn precision(&mut self, printer: &mut Printer) -> bool {
        let after_number = self.argument_number();
        if self.peek() == Some(b'*') {
            self.at += 1;
            match self.int_argument() {
                Some(precision) if precision >= 0 => printer.flags.precision = Some(precision as usize),
                _ => printer.text("%!(BADPREC)"),
            }
            return false;
        }
        printer.flags.precision = Some(self.number().unwrap_or(0) as usize);
        after_number
    }

    /// A decimal number. One that is too large ends the format: that is how Go reads it.
    fn number(&mut self) -> Option<i64> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let so_far = number.unwrap_or(0);
            if so_far > TOO_LARGE {
                self.at = self.format.len();
                return None;
            }
            number = Some(so_far * 10 + i64::from(digit - b'0'));
            self.at += 1;
        }
        number
    }

    fn int_argument(&mut self) -> Option<i64> {
        let arg = self.args.get(self.arg)?;
        self.arg += 1;
        let int = arg.as_int().or_else(|| arg.as_uint().and_then(|uint| i64::try_from(uint).ok()))?;
        (-TOO_LARGE..=TOO_LARGE).contains(&int).then_some(int)
    }

    /// An argument number such as `[3]`; whether there was a usable one.
    fn argument_number(&mut self) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let close = rest.iter().position(|&byte| byte == b']');
        let Some(close) = close.filter(|_| rest.len() >= 3) else {
            self.good_number = false;
            self.at += 1;
            return false;
        };
        let digits = &rest[1..close];
        self.at += close + 1;
        let index = match digits.iter().all(u8::is_ascii_digit) && !digits.is_empty() && digits.len() < 8 {
            true => digits.iter().fold(0i64, |number, digit| number * 10 + i64::from(digit - b'0')),
            false => {
                self.good_number = false;
                return false;
            }
        };
        match usize::try_from(index - 1) {
            Ok(index) if index < self.args.len() => self.arg = index,
            _ => self.good_number = false,
        }
        true
    }
}
