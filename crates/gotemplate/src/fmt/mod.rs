//! Go's fmt: what `print`, `printf` and a bare `{{ . }}` write for every kind of value.

mod format;
mod printer;
mod printf;

use crate::error::Limit;
use crate::value::{Kind, Value};
use printer::Printer;

/// Room for texts that only go into errors and the like.
const SMALL: usize = 1 << 20;

/// Appends a value as a template writes it: what a pointer points to.
pub fn print_pointed_to(out: &mut Vec<u8>, value: &Value, room: usize) -> Result<(), Limit> {
    let mut printer = Printer::new(std::mem::take(out), room);
    let result = match value {
        Value::Object(object) if object.text().is_none() => printer.pointed_to(&**object, 'v'),
        other => printer.print_arg(other, 'v'),
    };
    *out = printer.buffer;
    result
}

/// Appends a value as `fmt.Fprint` writes it. `room` is the most the buffer may hold.
pub fn print_value(out: &mut Vec<u8>, value: &Value, room: usize) -> Result<(), Limit> {
    let mut printer = Printer::new(std::mem::take(out), room);
    let result = printer.print_arg(value, 'v');
    *out = printer.buffer;
    result
}

/// `fmt.Sprint`: spaces only between operands neither of which is a string.
pub fn sprint(args: &[Value], room: usize) -> Result<Vec<u8>, Limit> {
    let mut printer = Printer::new(Vec::new(), room);
    let mut after_string = false;
    for (at, arg) in args.iter().enumerate() {
        let is_string = arg.kind() == Kind::String;
        if at > 0 && !is_string && !after_string {
            printer.buffer.push(b' ');
        }
        printer.print_arg(arg, 'v')?;
        after_string = is_string;
    }
    Ok(printer.buffer)
}

/// `fmt.Sprintln`: spaces between all operands, a newline after the last.
pub fn sprintln(args: &[Value], room: usize) -> Result<Vec<u8>, Limit> {
    let mut printer = Printer::new(Vec::new(), room);
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            printer.buffer.push(b' ');
        }
        printer.print_arg(arg, 'v')?;
    }
    printer.buffer.push(b'\n');
    Ok(printer.buffer)
}

/// `fmt.Sprintf`
pub fn sprintf(format: &[u8], args: &[Value], room: usize) -> Result<Vec<u8>, Limit> {
    let mut printer = Printer::new(Vec::with_capacity(format.len() + 16), room);
    printf::print(&mut printer, format, args)?;
    Ok(printer.buffer)
}

/// A value as `%v` shows it, for error texts.
pub fn show(value: &Value) -> String {
    verb(value, 'v')
}

/// A value as some verb shows it, for error texts.
pub fn verb(value: &Value, verb: char) -> String {
    let mut printer = Printer::new(Vec::new(), SMALL);
    if printer.print_arg(value, verb).is_err() {
        printer.buffer.truncate(SMALL);
        printer.buffer.extend_from_slice(b"...");
    }
    String::from_utf8_lossy(&printer.buffer).into_owned()
}
