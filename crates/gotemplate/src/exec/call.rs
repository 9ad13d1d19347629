//! Calling functions and methods: counting, evaluating and checking their arguments.

use super::builtin::Builtin;
use super::{Exec, Slot, State};
use crate::context::{Context, Failure};
use crate::function::{Function, Signature};
use crate::node::{FunctionRef, Operand, Place};
use crate::value::{Func, Type, Value};

/// What is to be called.
#[derive(Clone, Copy)]
pub(super) enum Callee<'v> {
    Function(Function),
    Builtin(Builtin),
    Method { receiver: &'v Value, name: &'v str, signature: Signature },
}

impl Callee<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Function(function) => function.name,
            Self::Builtin(builtin) => builtin.name(),
            Self::Method { name, .. } => name,
        }
    }

    fn signature(&self) -> Signature {
        match self {
            Self::Function(function) => function.signature,
            Self::Builtin(builtin) => builtin.signature(),
            Self::Method { signature, .. } => *signature,
        }
    }

    fn run(&self, ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
        match self {
            Self::Function(function) => (function.call)(ctx, args),
            Self::Builtin(builtin) => builtin.call(ctx, args),
            Self::Method { receiver, name, .. } => call_method(ctx, receiver, name, args),
        }
    }
}

fn call_method(ctx: &Context<'_>, receiver: &Value, name: &str, args: &[Value]) -> Result<Value, Failure> {
    match receiver {
        Value::Object(object) => object.call(ctx, name, args),
        Value::Time(time) => crate::time::call_time(ctx, time, name, args),
        Value::Duration(duration) => crate::time::call_duration(*duration, name, args),
        other => match other.type_of().methods() {
            Some(methods) => methods.call(ctx, other, name, args),
            None => Err(Failure::new(format!("no method {name}"))),
        },
    }
}

impl<'a> State<'a> {
    /// A function named by an identifier. `place` is what an error of the function itself is reported at.
    pub(super) fn function(
        &mut self,
        dot: &Slot,
        operand: &'a Operand,
        place: Place<'a>,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        self.at = Place::Operand(operand);
        let Operand::Function { function, .. } = operand else {
            return self.error(format!("{operand} is not a function"));
        };
        match function {
            FunctionRef::Builtin(builtin @ (Builtin::And | Builtin::Or)) => {
                self.and_or(dot, *builtin, args, last)
            }
            FunctionRef::Builtin(Builtin::Call) => self.call_value(dot, place, args, last),
            FunctionRef::Builtin(builtin) => self.call(dot, Callee::Builtin(*builtin), place, args, last),
            FunctionRef::Table(at) => {
                let function = *self.ctx.set.functions().at(*at);
                self.call(dot, Callee::Function(function), place, args, last)
            }
        }
    }

    pub(super) fn call(
        &mut self,
        dot: &Slot,
        callee: Callee<'_>,
        place: Place<'a>,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        let values = self.arguments(dot, callee.name(), callee.signature(), args, last)?;
        let result = callee.run(&self.ctx, &values);
        self.give_back(values);
        self.finish(place, callee.name(), result)
    }

    fn finish(&mut self, place: Place<'a>, name: &str, result: Result<Value, Failure>) -> Exec<Value> {
        let counted = result.and_then(|value| {
            self.ctx.session.memory.made(&value, self.ctx.session.limits())?;
            Ok(value)
        });
        counted.map_err(|failure| {
            self.at = place;
            self.failure(format_args!("error calling {name}: {}", failure.text()), failure.limit())
        })
    }

    /// Counts and evaluates the arguments; the value of the pipeline so far comes last.
    fn arguments(
        &mut self,
        dot: &Slot,
        name: &str,
        signature: Signature,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Vec<Value>> {
        let given = args.len() + usize::from(last.is_some());
        let fixed = signature.params.len();
        match signature.variadic {
            Some(_) if given < fixed => {
                // Go counts the pipeline's value when it compares, but not when it complains.
                let got = args.len();
                return self
                    .error(format!("wrong number of args for {name}: want at least {fixed} got {got}"));
            }
            None if given != fixed => {
                return self.error(format!("wrong number of args for {name}: want {fixed} got {given}"));
            }
            _ => {}
        }
        let parameter =
            |at: usize| signature.params.get(at).copied().or(signature.variadic).unwrap_or(Type::Any);
        let mut values = self.spare.pop().unwrap_or_default();
        for (at, operand) in args.iter().enumerate() {
            let value = self.arg(dot, parameter(at), operand)?;
            values.push(value);
        }
        if let Some(last) = last {
            values.push(self.checked(last, parameter(args.len()))?);
        }
        Ok(values)
    }

    fn give_back(&mut self, mut values: Vec<Value>) {
        let memory = &self.ctx.session.memory;
        values.drain(..).for_each(|value| memory.dropped(&value));
        self.spare.push(values);
    }

    /// `and` and `or` evaluate no more than they have to.
    fn and_or(
        &mut self,
        dot: &Slot,
        which: Builtin,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        if args.is_empty() && last.is_none() {
            return self.error(format!("wrong number of args for {}: want at least 1 got 0", which.name()));
        }
        let stop_at = which == Builtin::Or;
        let mut value = Value::NoValue;
        for operand in args {
            value = self.arg(dot, Type::Reflect, operand)?;
            if value.truth() == stop_at {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    /// `call`, which wants the text of its first argument for errors.
    fn call_value(
        &mut self,
        dot: &Slot,
        place: Place<'a>,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Exec<Value> {
        let name = match (args.first(), &last) {
            (Some(operand), _) => operand.to_string(),
            // Go's `reflect.Value.String`.
            (None, Some(Value::String(text))) => text.to_string(),
            (None, Some(value)) => format!("<{} Value>", value.type_of()),
            (None, None) => String::new(),
        };
        let values = self.arguments(dot, "call", Builtin::Call.signature(), args, last)?;
        let result = call_func(&self.ctx, &name, &values);
        self.give_back(values);
        self.finish(place, "call", result)
    }
}

fn call_func(ctx: &Context<'_>, name: &str, values: &[Value]) -> Result<Value, Failure> {
    let (function, args) = values.split_first().ok_or_else(|| Failure::new("call of nil"))?;
    match function {
        Value::Nil | Value::NoValue => Err(Failure::new("call of nil")),
        Value::Func(func) => {
            let args = func_args(name, func, args)?;
            (func.body)(ctx, &args)
        }
        other => Err(Failure::new(format!("non-function {name} of type {}", other.type_of()))),
    }
}

fn func_args(name: &str, func: &Func, args: &[Value]) -> Result<Vec<Value>, Failure> {
    let fixed = func.signature.params.len();
    let got = args.len();
    match func.signature.variadic {
        Some(_) if got < fixed => {
            return Err(Failure::new(format!(
                "wrong number of args for {name}: got {got} want at least {fixed}"
            )));
        }
        None if got != fixed => {
            return Err(Failure::new(format!("wrong number of args for {name}: got {got} want {fixed}")));
        }
        _ => {}
    }
    args.iter()
        .enumerate()
        .map(|(at, arg)| {
            let wanted =
                func.signature.params.get(at).copied().or(func.signature.variadic).unwrap_or(Type::Any);
            prepare(arg, wanted).map_err(|message| Failure::new(format!("arg {at}: {message}")))
        })
        .collect()
}

/// Go's `prepareArg`: like an argument check, but integers of different types are converted.
pub(super) fn prepare(value: &Value, wanted: Type) -> Result<Value, String> {
    if value.is_nil() {
        return match wanted.can_be_nil() {
            true => Ok(Value::Nil),
            false => Err(format!("value is nil; should be of type {wanted}")),
        };
    }
    if value.type_of().assignable_to(wanted) {
        return Ok(value.clone());
    }
    let int = value.as_int().or_else(|| value.as_uint().map(|uint| uint as i64));
    match (int, wanted) {
        (Some(int), Type::Int) => Ok(Value::Int(int)),
        (Some(int), Type::Int32) => Ok(Value::Int32(int as i32)),
        (Some(int), Type::Int64) => Ok(Value::Int64(int)),
        (Some(int), Type::Uint8) => Ok(Value::Uint8(int as u8)),
        (Some(int), Type::Uint32) => Ok(Value::Uint32(int as u32)),
        (Some(int), Type::Uint64) => Ok(Value::Uint64(int as u64)),
        _ => Err(format!("value has type {}; should be {wanted}", value.type_of())),
    }
}
