//! Computing values: pipelines, commands, operands.

use super::{Exec, Slot, State, Variable};
use crate::node::{Command, Declared, Number, Operand, Pipe, Place};
use crate::value::{Kind, Type, Value};

impl<'a> State<'a> {
    /// The value of a pipeline. What it declares stays on the stack of variables.
    pub(super) fn pipeline(&mut self, dot: &Slot, pipe: &'a Pipe) -> Exec<Value> {
        self.at = Place::Pipe(pipe);
        let mut value = None;
        for command in &pipe.commands {
            let next = self.command(dot, command, value)?;
            // Go digs one level into an interface: a nil within is no value at all.
            value = Some(if matches!(next, Value::Nil) { Value::NoValue } else { next });
        }
        let value = value.unwrap_or(Value::NoValue);
        for declared in &pipe.declares {
            let slot = Slot::plain(value.clone());
            if pipe.assign {
                self.assign(declared, slot)?;
            } else {
                self.variables.push(Variable { symbol: declared.symbol, slot });
            }
        }
        Ok(value)
    }

    pub(super) fn assign(&mut self, declared: &Declared, slot: Slot) -> Exec<()> {
        match self.variables.iter_mut().rev().find(|variable| variable.symbol == declared.symbol) {
            Some(variable) => {
                variable.slot = slot;
                Ok(())
            }
            None => self.error(format!("undefined variable: {}", declared.name)),
        }
    }

    fn command(&mut self, dot: &Slot, command: &'a Command, last: Option<Value>) -> Exec<Value> {
        let first = &command.args[0];
        match first {
            Operand::Field { .. } | Operand::Variable { .. } | Operand::Chain { .. } => {
                self.fields(dot, first, &command.args[1..], last)
            }
            Operand::Function { .. } => {
                self.function(dot, first, Place::Command(command), &command.args[1..], last)
            }
            Operand::Pipe(pipe) => {
                self.not_a_function(command, &last)?;
                self.nested_pipeline(dot, pipe)
            }
            literal => {
                self.at = Place::Operand(literal);
                self.not_a_function(command, &last)?;
                if matches!(literal, Operand::Nil { .. }) {
                    return self.error("nil is not a command");
                }
                self.literal(dot, literal)
            }
        }
    }

    pub(super) fn nested_pipeline(&mut self, dot: &Slot, pipe: &'a Pipe) -> Exec<Value> {
        crate::stack::grow(|| self.pipeline(dot, pipe))
    }

    fn not_a_function(&self, command: &Command, last: &Option<Value>) -> Exec<()> {
        if command.args.len() > 1 || last.is_some() {
            return self.error(format!("can't give argument to non-function {}", shown(&command.args[0])));
        }
        Ok(())
    }

    fn literal(&mut self, dot: &Slot, operand: &'a Operand) -> Exec<Value> {
        match operand {
            Operand::Bool { value, .. } => Ok(Value::Bool(*value)),
            Operand::Dot { .. } => Ok(dot.value.clone()),
            Operand::Number { number, .. } => self.number(number),
            Operand::String { text, .. } => Ok(Value::String(text.clone())),
            other => self.error(format!(
                "can't evaluate command {}",
                crate::strconv::quote(other.to_string().as_bytes())
            )),
        }
    }

    /// The Go type an untyped constant takes when nothing asks for a type.
    fn number(&self, number: &Number) -> Exec<Value> {
        if let Some(parts) = number.complex {
            return Ok(Value::Complex(Box::new(parts)));
        }
        let text = &*number.text;
        let is_hex_int = text.starts_with("0x") || text.starts_with("0X");
        let is_hex_int = is_hex_int && text.len() > 2 && !text.contains(['p', 'P']);
        let looks_float = !is_hex_int && !text.starts_with('\'') && text.contains(['.', 'e', 'E', 'p', 'P']);
        match (number.float, number.int) {
            (Some(float), _) if looks_float => Ok(Value::Float64(float)),
            (_, Some(int)) => Ok(Value::Int(int)),
            _ => self.error(format!("{text} overflows int")),
        }
    }

    /// An argument, checked against the type of the parameter.
    pub(super) fn arg(&mut self, dot: &Slot, wanted: Type, operand: &'a Operand) -> Exec<Value> {
        self.at = Place::Operand(operand);
        match operand {
            Operand::Dot { .. } => self.checked(dot.value.clone(), wanted),
            Operand::Nil { .. } => match wanted {
                Type::Reflect => Ok(Value::NoValue),
                wanted if wanted.can_be_nil() => Ok(Value::Nil),
                wanted => self.error(format!("cannot assign nil to {wanted}")),
            },
            Operand::Field { .. } | Operand::Variable { .. } | Operand::Chain { .. } => {
                let value = self.fields(dot, operand, &[], None)?;
                self.checked(value, wanted)
            }
            Operand::Pipe(pipe) => {
                let value = self.nested_pipeline(dot, pipe)?;
                self.checked(value, wanted)
            }
            Operand::Function { .. } => {
                let value = self.function(dot, operand, Place::Operand(operand), &[], None)?;
                self.checked(value, wanted)
            }
            literal => self.typed_literal(dot, wanted, literal),
        }
    }

    fn typed_literal(&mut self, dot: &Slot, wanted: Type, operand: &'a Operand) -> Exec<Value> {
        let (expected, found) = match (wanted.kind(), operand) {
            _ if matches!(wanted, Type::Any | Type::Reflect) => return self.literal(dot, operand),
            (Kind::Bool, Operand::Bool { value, .. }) => ("bool", Some(Value::Bool(*value))),
            (Kind::Bool, _) => ("bool", None),
            (Kind::Complex128, Operand::Number { number, .. }) => {
                ("complex", number.complex.map(|parts| Value::Complex(Box::new(parts))))
            }
            (Kind::Complex128, _) => ("complex", None),
            (Kind::Float64, Operand::Number { number, .. }) => ("float", number.float.map(Value::Float64)),
            (Kind::Float64, _) => ("float", None),
            (Kind::Int | Kind::Int32 | Kind::Int64, Operand::Number { number, .. }) => {
                ("integer", number.int.map(|int| integer(wanted, int)))
            }
            (Kind::Int | Kind::Int32 | Kind::Int64, _) => ("integer", None),
            (Kind::Uint8 | Kind::Uint32 | Kind::Uint64, Operand::Number { number, .. }) => {
                ("unsigned integer", number.uint.map(|uint| unsigned(wanted, uint)))
            }
            (Kind::Uint8 | Kind::Uint32 | Kind::Uint64, _) => ("unsigned integer", None),
            (Kind::String, Operand::String { text, .. }) => ("string", Some(Value::String(text.clone()))),
            (Kind::String, _) => ("string", None),
            _ => return self.error(format!("can't handle {operand} for arg of type {wanted}")),
        };
        match found {
            Some(value) => Ok(value),
            None => self.error(format!("expected {expected}; found {operand}")),
        }
    }

    /// Checks that a value can be given for a parameter of the type `wanted`.
    pub(super) fn checked(&self, value: Value, wanted: Type) -> Exec<Value> {
        match (&value, wanted) {
            (_, Type::Reflect) => Ok(value),
            (Value::NoValue, Type::Any) => Ok(Value::Nil),
            (Value::Object(object), Type::Any) => Ok(object.as_argument().unwrap_or(value)),
            (_, Type::Any) => Ok(value),
            // A nil of the parameter's own type; functions see it as nil.
            (Value::NoValue, wanted) if wanted.can_be_nil() => Ok(Value::Nil),
            (Value::NoValue, wanted) => self.error(format!("invalid value; expected {wanted}")),
            (Value::Nil, wanted) => {
                self.error(format!("wrong type for value; expected {wanted}; got interface {{}}"))
            }
            (value_ref, wanted) => {
                let given = value_ref.type_of();
                if given.assignable_to(wanted) || given.points_to(wanted) {
                    return Ok(value);
                }
                self.error(format!("wrong type for value; expected {wanted}; got {given}"))
            }
        }
    }
}

fn integer(wanted: Type, int: i64) -> Value {
    match wanted {
        Type::Int32 => Value::Int32(int as i32),
        Type::Int64 => Value::Int64(int),
        Type::Duration => Value::Duration(crate::time::Duration(int)),
        _ => Value::Int(int),
    }
}

fn unsigned(wanted: Type, uint: u64) -> Value {
    match wanted {
        Type::Uint8 => Value::Uint8(uint as u8),
        Type::Uint32 => Value::Uint32(uint as u32),
        _ => Value::Uint64(uint),
    }
}

/// An operand as Go's `%s` shows it: a parenthesised pipeline without its parentheses.
fn shown(operand: &Operand) -> String {
    operand.to_string()
}
