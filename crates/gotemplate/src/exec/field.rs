//! Fields, methods and map entries: `.a.b`, `$x.a`, `(…).a`.

use super::call::Callee;
use super::{Exec, Slot, State};
use crate::node::{Operand, Place};
use crate::set::MissingKey;
use crate::strconv;
use crate::value::{Str, Type, Value};

impl<'a> State<'a> {
    /// A field, variable or chain operand; the arguments are for the method it may end in.
    pub(super) fn fields(
        &mut self,
        dot: &Slot,
        operand: &'a Operand,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        self.at = Place::Operand(operand);
        match operand {
            Operand::Field { fields, .. } => self.chain(dot, dot.clone(), operand, fields, args, last),
            Operand::Variable { symbol, name, fields, .. } => {
                let found = self.variables.iter().rev().find(|variable| variable.symbol == *symbol);
                let Some(variable) = found else {
                    return self.error(format!("undefined variable: {name}"));
                };
                if fields.is_empty() {
                    if !args.is_empty() || last.is_some() {
                        return self.error(format!("can't give argument to non-function {operand}"));
                    }
                    return Ok(variable.slot.value.clone());
                }
                let receiver = variable.slot.clone();
                self.chain(dot, receiver, operand, fields, args, last)
            }
            Operand::Chain { node, fields, .. } => {
                if matches!(**node, Operand::Nil { .. }) {
                    return self.error(format!("indirection through explicit nil in {operand}"));
                }
                let receiver = match &**node {
                    Operand::Pipe(pipe) => {
                        self.at = Place::Operand(node);
                        self.nested_pipeline(dot, pipe)?
                    }
                    node => self.arg(dot, Type::Reflect, node)?,
                };
                self.chain(dot, Slot::plain(receiver), operand, fields, args, last)
            }
            other => self.error(format!("can't evaluate field of {other}")),
        }
    }

    fn chain(
        &mut self,
        dot: &Slot,
        mut receiver: Slot,
        operand: &'a Operand,
        fields: &'a [Str],
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        let Some((end, path)) = fields.split_last() else { return Ok(receiver.value) };
        for field in path {
            receiver = self.field(dot, &receiver, field, operand, &[], None)?;
        }
        Ok(self.field(dot, &receiver, end, operand, args, last)?.value)
    }

    fn field(
        &mut self,
        dot: &Slot,
        receiver: &Slot,
        name: &'a Str,
        operand: &'a Operand,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Slot> {
        match &receiver.value {
            Value::NoValue => {
                if self.ctx.set.missing() == MissingKey::Error {
                    return self
                        .error(format!("nil data; no entry for key {}", strconv::quote(name.as_bytes())));
                }
                return Ok(Slot::plain(Value::NoValue));
            }
            Value::Nil => return self.error(format!("nil pointer evaluating interface {{}}.{name}")),
            Value::Map(map) if map.type_of().methods().is_none() => {
                return self.entry(map, name, !args.is_empty() || last.is_some());
            }
            _ => {}
        }
        if let Some(callee) = method(&receiver.value, name) {
            let value = self.call(dot, callee, Place::Operand(operand), args, last)?;
            return Ok(Slot::plain(value));
        }
        let has_args = !args.is_empty() || last.is_some();
        match &receiver.value {
            Value::Map(map) => return self.entry(map, name, has_args),
            Value::Object(object) => {
                if let Some(value) = name.as_str().and_then(|name| object.field(name)) {
                    if has_args {
                        return self.error(format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Slot::plain(value));
                }
            }
            _ => {}
        }
        let of = if receiver.in_interface { Type::Any } else { receiver.value.type_of() };
        self.error(format!("can't evaluate field {name} in type {of}"))
    }

    fn entry(&self, map: &crate::value::Map, name: &Str, has_args: bool) -> Exec<Slot> {
        if has_args {
            return self.error(format!("{name} is not a method but has arguments"));
        }
        let element = map.type_of().element();
        let value = match (map.get_bytes(name.as_bytes()), self.ctx.set.missing()) {
            (Some(value), _) => value,
            (None, MissingKey::Invalid) => Value::NoValue,
            (None, MissingKey::Zero) => element.zero(),
            (None, MissingKey::Error) => {
                return self.error(format!("map has no entry for key {}", strconv::quote(name.as_bytes())));
            }
        };
        Ok(Slot { value, in_interface: element.is_interface() })
    }
}

/// The method of that name, if the value's type has one.
fn method<'v>(receiver: &'v Value, name: &'v Str) -> Option<Callee<'v>> {
    let name = name.as_str()?;
    let signature = match receiver {
        Value::Object(object) => object.method(name)?,
        Value::Time(_) => crate::time::time_method(name)?,
        Value::Duration(_) => crate::time::duration_method(name)?,
        Value::Map(_) | Value::List(_) => receiver.type_of().methods()?.method(name)?,
        _ => return None,
    };
    Some(Callee::Method { receiver, name, signature })
}
