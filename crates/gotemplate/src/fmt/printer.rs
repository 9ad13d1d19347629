//! Values by verb, nested ones included.

use super::format::{Flags, Integer};
use crate::error::Limit;
use crate::value::{Kind, Object, Type, Value};

/// Deeper than this is a cycle, or might as well be one; Go would run out of stack.
const MAX_DEPTH: usize = 1_000;

/// Writes values into a buffer, under the flags of the current verb.
pub struct Printer {
    pub buffer: Vec<u8>,
    pub flags: Flags,
    room: usize,
    /// While a wrong verb is being reported, methods are not called.
    erroring: bool,
}

impl Printer {
    pub fn new(buffer: Vec<u8>, room: usize) -> Self {
        Self { buffer, flags: Flags::default(), room, erroring: false }
    }

    pub fn check(&self) -> Result<(), Limit> {
        if self.buffer.len() > self.room { Err(Limit::ValueSize(self.room)) } else { Ok(()) }
    }

    pub fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// One operand.
    pub fn print_arg(&mut self, arg: &Value, verb: char) -> Result<(), Limit> {
        if arg.is_nil() {
            match verb {
                'T' | 'v' => self.pad(b"<nil>"),
                _ => self.bad_verb(arg, verb)?,
            }
            return Ok(());
        }
        match verb {
            'T' => self.plain(arg.type_of().to_string().as_bytes()),
            'p' => self.pointer(arg, 'p')?,
            _ => self.value(arg, verb, 0)?,
        }
        self.check()
    }

    fn bad_verb(&mut self, arg: &Value, verb: char) -> Result<(), Limit> {
        self.text(&format!("%!{verb}("));
        if arg.is_nil() {
            self.text("<nil>");
        } else {
            let erroring = std::mem::replace(&mut self.erroring, true);
            self.text(&format!("{}=", arg.type_of()));
            self.value(arg, 'v', 0)?;
            self.erroring = erroring;
        }
        self.buffer.push(b')');
        Ok(())
    }

    fn value(&mut self, value: &Value, verb: char, depth: usize) -> Result<(), Limit> {
        if depth > MAX_DEPTH {
            return Err(Limit::Nesting(MAX_DEPTH));
        }
        self.check()?;
        if self.by_method(value, verb)? {
            return Ok(());
        }
        let done = match value {
            Value::Nil | Value::NoValue => {
                // Within another value; its static type is an interface.
                self.text(if self.flags.sharp_v { "interface {}(nil)" } else { "<nil>" });
                true
            }
            Value::Bool(value) => self.boolean(*value, verb),
            Value::Int(value) | Value::Int64(value) => self.integer(Integer::signed(*value), verb),
            Value::Int32(value) => self.integer(Integer::signed(i64::from(*value)), verb),
            Value::Duration(value) => self.integer(Integer::signed(value.0), verb),
            Value::Uint8(value) => self.integer(Integer::unsigned(u64::from(*value)), verb),
            Value::Uint32(value) => self.integer(Integer::unsigned(u64::from(*value)), verb),
            Value::Uint64(value) => self.integer(Integer::unsigned(*value), verb),
            Value::Float64(value) => self.float(*value, verb),
            Value::Complex(parts) => self.complex(**parts, verb),
            Value::String(text) => self.string(text.as_bytes(), verb),
            Value::Bytes(bytes) => return self.bytes(bytes, verb, depth),
            Value::List(list) => {
                let of = list.type_of();
                if list.is_nil() && self.flags.sharp_v {
                    self.text(&format!("{of}(nil)"));
                    return Ok(());
                }
                return crate::stack::grow(|| self.list(of, list, verb, depth));
            }
            Value::Map(map) => return crate::stack::grow(|| self.map(map, verb, depth)),
            Value::Time(time) => {
                // By its fields, of which a template can see nothing useful: Go prints wall, ext and loc.
                self.string(time.string().as_bytes(), if verb == 'd' { 'v' } else { verb })
            }
            Value::Func(_) => return self.pointer(value, verb),
            Value::Object(object) => return self.object(&**object, value, verb, depth),
        };
        if !done {
            self.bad_verb(value, verb)?;
        }
        Ok(())
    }

    /// Values with a `String` or `Error` method print what it answers.
    fn by_method(&mut self, value: &Value, verb: char) -> Result<bool, Limit> {
        if self.erroring {
            return Ok(false);
        }
        if verb == 'w' {
            self.bad_verb(value, verb)?;
            return Ok(true);
        }
        if self.flags.sharp_v {
            let Value::Time(time) = value else { return Ok(false) };
            self.plain(time.go_string().as_bytes());
            return Ok(true);
        }
        if !matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') {
            return Ok(false);
        }
        let text = match value {
            Value::Time(time) => time.string(),
            Value::Duration(duration) => duration.to_string(),
            Value::Object(object) => match object.text() {
                Some(text) => text,
                None => return Ok(false),
            },
            Value::Map(_) | Value::List(_) => match value.type_of().methods().and_then(|m| m.text(value)) {
                Some(text) => text,
                None => return Ok(false),
            },
            _ => return Ok(false),
        };
        Ok(self.string(text.as_bytes(), verb))
    }

    fn bytes(&mut self, bytes: &[u8], verb: char, depth: usize) -> Result<(), Limit> {
        match verb {
            's' => self.plain(bytes),
            'x' => self.hex_lower(bytes),
            'X' => self.hex_upper(bytes),
            'q' => self.quoted(bytes),
            'v' | 'd' if self.flags.sharp_v => {
                self.text(if depth == 0 { "[]byte{" } else { "[]uint8{" });
                for (at, byte) in bytes.iter().enumerate() {
                    if at > 0 {
                        self.text(", ");
                    }
                    self.hex_with_prefix(Integer::unsigned(u64::from(*byte)), true);
                    self.check()?;
                }
                self.buffer.push(b'}');
            }
            _ => {
                self.buffer.push(b'[');
                for (at, byte) in bytes.iter().enumerate() {
                    if at > 0 {
                        self.buffer.push(b' ');
                    }
                    self.value(&Value::Uint8(*byte), verb, depth + 1)?;
                }
                self.buffer.push(b']');
            }
        }
        Ok(())
    }

    fn list(&mut self, of: Type, items: &[Value], verb: char, depth: usize) -> Result<(), Limit> {
        let sharp = self.flags.sharp_v;
        if sharp {
            self.text(&of.to_string());
        }
        self.buffer.push(if sharp { b'{' } else { b'[' });
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.separate();
            }
            self.value(item, verb, depth + 1)?;
        }
        self.buffer.push(if sharp { b'}' } else { b']' });
        Ok(())
    }

    fn map(&mut self, map: &crate::value::Map, verb: char, depth: usize) -> Result<(), Limit> {
        let sharp = self.flags.sharp_v;
        if sharp && map.is_nil() {
            self.text(&format!("{}(nil)", map.type_of()));
            return Ok(());
        }
        if sharp {
            self.text(&map.type_of().to_string());
            self.buffer.push(b'{');
        } else {
            self.text("map[");
        }
        for (at, (key, value)) in map.entries().iter().enumerate() {
            if at > 0 {
                self.separate();
            }
            if !self.string(key.as_bytes(), verb) {
                self.bad_verb(&Value::String(key.clone()), verb)?;
            }
            self.buffer.push(b':');
            self.value(value, verb, depth + 1)?;
        }
        self.buffer.push(if sharp { b'}' } else { b']' });
        Ok(())
    }

    fn separate(&mut self) {
        self.text(if self.flags.sharp_v { ", " } else { " " });
    }

    fn object(&mut self, object: &dyn Object, value: &Value, verb: char, depth: usize) -> Result<(), Limit> {
        let name = object.type_name();
        if name.starts_with('*') {
            if depth > 0 {
                return self.pointer(value, verb);
            }
            self.buffer.push(b'&');
        }
        if self.flags.sharp_v {
            self.text(name.trim_start_matches('*'));
        }
        self.fields(object, verb, depth)
    }

    /// The struct behind a pointer.
    pub(super) fn pointed_to(&mut self, object: &dyn Object, verb: char) -> Result<(), Limit> {
        self.fields(object, verb, 0)
    }

    fn fields(&mut self, object: &dyn Object, verb: char, depth: usize) -> Result<(), Limit> {
        self.buffer.push(b'{');
        for (at, (name, field)) in object.fields().iter().enumerate() {
            if at > 0 {
                self.separate();
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.text(name);
                self.buffer.push(b':');
            }
            self.value(field, verb, depth + 1)?;
        }
        self.buffer.push(b'}');
        Ok(())
    }

    /// An address. It tells values apart and means nothing else, as in Go.
    fn pointer(&mut self, value: &Value, verb: char) -> Result<(), Limit> {
        let address = match value {
            Value::Map(map) => map.identity(),
            Value::List(list) => list.as_ptr() as usize,
            Value::Bytes(bytes) => bytes.as_ptr() as usize,
            Value::Func(func) => std::rc::Rc::as_ptr(func) as usize,
            Value::Object(object) if value.kind() == Kind::Pointer => {
                std::rc::Rc::as_ptr(object).cast::<()>() as usize
            }
            _ => return self.bad_verb(value, verb),
        };
        let address = Integer::unsigned(address as u64);
        match verb {
            'v' if self.flags.sharp_v => {
                self.text(&format!("({})(", value.type_of()));
                self.hex_with_prefix(address, true);
                self.buffer.push(b')');
            }
            'v' | 'p' => self.hex_with_prefix(address, !self.flags.sharp),
            'b' | 'o' | 'd' | 'x' | 'X' => {
                self.integer(address, verb);
            }
            _ => return self.bad_verb(value, verb),
        }
        Ok(())
    }
}
