//! Kubernetes CEL: the language with Kubernetes' libraries, limits and type rules.
//!
//! ```
//! use kube_cel::{Bindings, Environment, Program, Type};
//!
//! let environment = Environment::new().with("self", Type::Dyn).returning(Type::Bool);
//! let program = Program::compile("self.spec.replicas >= 1", &environment).expect("compiles");
//! let object = serde_json::json!({"spec": {"replicas": 3}});
//! let bindings = Bindings::new().with_json("self", &object);
//! assert_eq!(program.eval(&bindings).expect("runs").as_bool(), Some(true));
//! ```
//!
//! Compiling finds unknown names, unknown fields (of declared types), calls that cannot work and a wrong type of result, in
//! cel-go's words. Running costs a unit per step and more where a function looks at more; the budget is Kubernetes' limit
//! for one call unless told otherwise. Macros are run, not expanded, and JSON is borrowed, so a run copies little.
//!
//! Written here and not on top of a crate: no Rust CEL has a checker, positions for its errors, a budget, or Kubernetes'
//! rules for numbers, and with those added little of one would remain.
//!
//! Deliberately absent: protobuf messages, named time zones (offsets and UTC only), the authorizer library.

mod ast;
mod check;
mod eval;
mod lex;
mod libraries;
mod parse;
mod quantity;
mod signatures;
mod static_type;
mod value;

#[cfg(test)]
mod tests;

pub use quantity::{Quantity, QuantityError};
pub use static_type::{ObjectType, Type};
pub use value::{Key, List, Map, Text, Value};

use ast::Expr;

/// A duration as Go writes it (`1h30m`), in nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    libraries::parse_duration(text)
}

/// What one run may cost in Kubernetes (`PerCallLimit`).
pub const COST_LIMIT: u64 = 1_000_000;

/// Which functions there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Libraries {
    /// What Kubernetes 1.36 offers.
    #[default]
    Kubernetes,
    /// Also the structures that mutating admission policies write: `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`, which
    /// result in maps, and `jsonpatch.escapeKey`.
    Mutation,
    /// Also what cel-go's newest extensions offer beyond that: `base64`, `reverse` of text.
    Extended,
}

/// What an expression may refer to, and what it must result in.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    result: Option<Type>,
    libraries: Libraries,
}

impl Environment {
    pub fn new() -> Self {
        Environment::default()
    }

    /// Declares a variable.
    pub fn with(mut self, name: impl Into<String>, type_: Type) -> Self {
        self.variables.push((name.into(), type_));
        self
    }

    /// Demands this type of result.
    pub fn returning(mut self, type_: Type) -> Self {
        self.result = Some(type_);
        self
    }

    /// Chooses the functions.
    pub fn with_libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self
    }

    fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.iter().find(|(variable, _)| variable == name).map(|(_, type_)| type_)
    }
}

/// A compiled expression. Compile once, run many times.
#[derive(Debug)]
pub struct Program {
    expr: Expr,
    type_: Type,
    result: Option<Type>,
    libraries: Libraries,
}

impl Program {
    pub fn compile(text: &str, environment: &Environment) -> Result<Program, CompileError> {
        let expr = parse::parse(text, environment.libraries)?;
        let type_ = check::check(text, &expr, environment)?;
        let result = environment.result.clone();
        if let Some(wanted) = &result
            && type_ != *wanted
            && type_ != Type::Dyn
        {
            return Err(CompileError {
                message: format!("must evaluate to {wanted}, not {type_}"),
                offset: 0,
            });
        }
        Ok(Program { expr, type_, result, libraries: environment.libraries })
    }

    /// Takes an expression without looking at names and types: whatever is wrong with those shows when it runs. For callers
    /// who do not know beforehand what an object holds.
    pub fn unchecked(text: &str, libraries: Libraries) -> Result<Program, CompileError> {
        Ok(Program { expr: parse::parse(text, libraries)?, type_: Type::Dyn, result: None, libraries })
    }

    /// The type of the result as far as it is known.
    pub fn result_type(&self) -> &Type {
        &self.type_
    }

    /// Runs with Kubernetes' limit for one call.
    pub fn eval<'a>(&self, bindings: &Bindings<'a>) -> Result<Value<'a>, EvalError> {
        self.eval_within(bindings, COST_LIMIT).0
    }

    /// Runs within a budget; also answers what was spent.
    pub fn eval_within<'a>(
        &self,
        bindings: &Bindings<'a>,
        limit: u64,
    ) -> (Result<Value<'a>, EvalError>, u64) {
        let mut run = eval::Run::new(bindings, limit, self.libraries);
        let answer = run.eval(&self.expr).and_then(|value| self.has_result_type(value));
        (answer, run.spent())
    }

    fn has_result_type<'a>(&self, value: Value<'a>) -> Result<Value<'a>, EvalError> {
        let fits = match &self.result {
            Some(Type::Bool) => matches!(value, Value::Bool(_)),
            Some(Type::String) => matches!(value, Value::String(_)),
            Some(Type::Int) => matches!(value, Value::Int(_)),
            _ => true,
        };
        match &self.result {
            Some(wanted) if !fits => Err(EvalError::message(format!(
                "expression must evaluate to {wanted}, not {}",
                value.type_name()
            ))),
            _ => Ok(value),
        }
    }
}

/// Values of the variables for one run.
#[derive(Default)]
pub struct Bindings<'a> {
    variables: Vec<(&'a str, Value<'a>)>,
    fields: Option<&'a serde_json::Map<String, serde_json::Value>>,
    cancelled: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Bindings<'a> {
    pub fn new() -> Self {
        Bindings::default()
    }

    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.variables.push((name, value));
        self
    }

    pub fn with_json(self, name: &'a str, value: &'a serde_json::Value) -> Self {
        self.with(name, Value::from_json(value))
    }

    /// Makes every field of the object a variable, as Flux's health checks see an object.
    pub fn with_fields_of(mut self, object: &'a serde_json::Map<String, serde_json::Value>) -> Self {
        self.fields = Some(object);
        self
    }

    /// Asked now and then during a run; true ends it. For a caller with a clock.
    pub fn cancelled_by(mut self, cancelled: &'a dyn Fn() -> bool) -> Self {
        self.cancelled = Some(cancelled);
        self
    }

    fn get(&self, name: &str) -> Option<Value<'a>> {
        let own = self.variables.iter().find(|(variable, _)| *variable == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| self.fields.and_then(|fields| fields.get(name)).map(Value::from_json))
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.is_some_and(|cancelled| cancelled())
    }
}

/// Why an expression does not compile, with its place, as cel-go writes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    message: String,
    offset: usize,
}

impl CompileError {
    fn at(text: &str, offset: usize, message: impl std::fmt::Display) -> Self {
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = text[start..offset.min(text.len())].chars().count();
        let source = text[start..].lines().next().unwrap_or("");
        let dots = ".".repeat(column);
        CompileError {
            message: format!("ERROR: <input>:{line}:{}: {message}\n | {source}\n | {dots}^", column + 1),
            offset,
        }
    }

    fn join(mut errors: Vec<CompileError>) -> Option<CompileError> {
        errors.sort_by_key(|error| error.offset);
        let messages: Vec<String> = errors.into_iter().map(|error| error.message).collect();
        (!messages.is_empty()).then(|| CompileError { message: messages.join("\n"), offset: 0 })
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    #[error("no such overload")]
    NoSuchOverload,
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    #[error("operation interrupted")]
    Cancelled,
    #[error("{0}")]
    Message(String),
}

impl EvalError {
    fn message(message: impl Into<String>) -> Self {
        EvalError::Message(message.into())
    }
}
