//! Finds what cannot work before it runs: unknown names, fields and functions, and calls with the wrong types.
//!
//! Lighter than cel-go's checker: where a type is not known (`dyn`) everything goes, and a parameter that meets two types
//! becomes `dyn` only if one of them is.

use std::collections::HashMap;

use crate::ast::{Expr, Kind, Macro, MacroKind};
use crate::libraries;
use crate::signatures::{self, Signature};
use crate::static_type::Type;
use crate::value::Literal;
use crate::{CompileError, Environment};

pub(crate) fn check(text: &str, expr: &Expr, environment: &Environment) -> Result<Type, CompileError> {
    let mut checker = Checker { text, environment, scopes: Vec::new(), errors: Vec::new(), mixed: false };
    let type_ = checker.type_of(expr);
    match CompileError::join(checker.errors) {
        Some(error) => Err(error),
        None => Ok(type_),
    }
}

struct Checker<'a> {
    text: &'a str,
    environment: &'a Environment,
    scopes: Vec<(String, Type)>,
    errors: Vec<CompileError>,
    /// Inside the arguments of `format`, where lists and maps may hold anything.
    mixed: bool,
}

/// Names that stand for types.
pub(crate) const TYPE_NAMES: [&str; 12] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

impl Checker<'_> {
    fn error(&mut self, offset: usize, message: String) -> Type {
        self.errors.push(CompileError::at(self.text, offset, message));
        Type::Dyn
    }

    fn variable(&self, name: &str) -> Option<Type> {
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        local.map(|(_, type_)| type_.clone()).or_else(|| self.environment.variable(name).cloned())
    }

    fn undeclared(&mut self, offset: usize, name: &str) -> Type {
        self.error(offset, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn type_of(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            Kind::Literal(literal) => of_literal(literal),
            Kind::Ident(name) => match self.variable(name) {
                Some(type_) => type_,
                None if TYPE_NAMES.contains(&name.as_str()) => Type::Type,
                None => self.undeclared(expr.offset, name),
            },
            Kind::Select { operand, field, optional } => {
                if let Some(type_) = qualified_type(expr) {
                    return type_;
                }
                let of = self.type_of(operand);
                let (of, was_optional) = unwrapped(of);
                let type_ = self.field(&of, field, expr.offset);
                if *optional || was_optional { Type::optional(type_) } else { type_ }
            }
            Kind::Has { operand, field } => {
                let (of, _) = unwrapped(self.type_of(operand));
                self.field(&of, field, expr.offset);
                Type::Bool
            }
            Kind::Index { operand, index, optional } => {
                let (of, was_optional) = unwrapped(self.type_of(operand));
                let by = self.type_of(index);
                let type_ = self.index(&of, &by, expr.offset);
                if *optional || was_optional { Type::optional(type_) } else { type_ }
            }
            Kind::Call { name, target, args } => self.call(expr, name, target.as_deref(), args),
            Kind::And(left, right) | Kind::Or(left, right) => {
                for side in [left, right] {
                    let type_ = self.type_of(side);
                    if !matches!(type_, Type::Bool | Type::Dyn) {
                        self.error(side.offset, format!("expected type 'bool' but found '{type_}'"));
                    }
                }
                Type::Bool
            }
            Kind::Choose { condition, yes, no } => {
                let condition = self.type_of(condition);
                let (yes, no) = (self.type_of(yes), self.type_of(no));
                if !matches!(condition, Type::Bool | Type::Dyn) {
                    return self.no_overload(expr.offset, "_?_:_", &[condition, yes, no], false);
                }
                match join(&yes, &no) {
                    Some(type_) => type_,
                    None => self.no_overload(expr.offset, "_?_:_", &[condition, yes, no], false),
                }
            }
            Kind::List(items) => {
                let types: Vec<(Type, usize)> = items
                    .iter()
                    .map(|(item, optional)| {
                        let type_ = self.type_of(item);
                        (if *optional { unwrapped(type_).0 } else { type_ }, item.offset)
                    })
                    .collect();
                Type::list(self.homogeneous(types))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for (key, value, optional) in entries {
                    keys.push((self.type_of(key), key.offset));
                    let type_ = self.type_of(value);
                    values.push((if *optional { unwrapped(type_).0 } else { type_ }, value.offset));
                }
                let key = self.homogeneous(keys);
                Type::map(key, self.homogeneous(values))
            }
            Kind::Macro(call) => self.macro_call(call, expr.offset),
        }
    }

    fn field(&mut self, of: &Type, field: &str, offset: usize) -> Type {
        match of {
            Type::Dyn => Type::Dyn,
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(type_) => type_.clone(),
                None => self.error(offset, format!("undefined field '{field}'")),
            },
            other => self.error(offset, format!("type '{other}' does not support field selection")),
        }
    }

    fn index(&mut self, of: &Type, by: &Type, offset: usize) -> Type {
        match of {
            Type::Dyn => Type::Dyn,
            Type::List(of) if matches!(by, Type::Int | Type::Dyn) => (**of).clone(),
            Type::Map(key, value) if join(key, by).is_some() => (**value).clone(),
            other => self.no_overload(offset, "_[_]", &[other.clone(), by.clone()], false),
        }
    }

    /// The one type of all items of a literal.
    fn homogeneous(&mut self, types: Vec<(Type, usize)>) -> Type {
        let mut all: Option<Type> = None;
        for (type_, offset) in types {
            all = Some(match all {
                None => type_,
                Some(before) => match join(&before, &type_) {
                    Some(joined) => joined,
                    None if self.mixed => Type::Dyn,
                    None => self.error(offset, format!("expected type '{before}' but found '{type_}'")),
                },
            });
        }
        all.unwrap_or(Type::Dyn)
    }

    fn call(&mut self, expr: &Expr, name: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        if let Some(target) = target
            && let Some(namespace) = qualified_name(target)
        {
            let full = format!("{namespace}.{name}");
            let root = namespace.split('.').next().unwrap_or("");
            if self.variable(root).is_none()
                && signatures::all(self.environment.libraries).contains_key(&full)
            {
                let types: Vec<Type> = args.iter().map(|arg| self.type_of(arg)).collect();
                return self.resolve(expr.offset, &full, types, false);
            }
        }
        let is_method = target.is_some();
        let mut types: Vec<Type> = target.into_iter().map(|target| self.type_of(target)).collect();
        for arg in args {
            types.push(match &arg.kind {
                // The one list that may hold anything.
                Kind::List(items) if is_method && name == "format" => {
                    self.mixed = true;
                    for (item, _) in items {
                        self.type_of(item);
                    }
                    self.mixed = false;
                    Type::list(Type::Dyn)
                }
                _ => self.type_of(arg),
            });
        }
        self.literal_argument(name, args);
        if let (true, "format", Some(target), [arg]) = (is_method, name, target, args) {
            self.format_call(expr, target, arg);
        }
        self.resolve(expr.offset, name, types, is_method)
    }

    /// Text that must be a duration, a time or a pattern is looked at now if it is written out.
    fn literal_argument(&mut self, name: &str, args: &[Expr]) {
        let Some(last) = args.last() else { return };
        let Kind::Literal(Literal::String(text)) = &last.kind else { return };
        let fine = match (name, args.len()) {
            ("duration", 1) => libraries::is_duration(text),
            ("timestamp", 1) => libraries::is_timestamp(text),
            ("matches", _) => libraries::is_pattern(text),
            _ => return,
        };
        if !fine {
            self.error(last.offset, format!("invalid {name} argument"));
        }
    }

    /// A format that is written out is compared with arguments that are written out.
    fn format_call(&mut self, call: &Expr, format: &Expr, args: &Expr) {
        let (Kind::Literal(Literal::String(format)), Kind::List(items)) = (&format.kind, &args.kind) else {
            return;
        };
        let kinds: Vec<Option<&'static str>> = items
            .iter()
            .map(|(item, _)| match &item.kind {
                Kind::Literal(Literal::String(_)) => Some("string"),
                Kind::Literal(Literal::Bool(_)) => Some("bool"),
                _ => None,
            })
            .collect();
        if let Err((index, message)) = libraries::check_format(format, &kinds) {
            let offset =
                index.and_then(|index| items.get(index)).map_or(call.offset, |(item, _)| item.offset);
            self.error(offset, message);
        }
    }

    fn resolve(&mut self, offset: usize, name: &str, types: Vec<Type>, is_method: bool) -> Type {
        // All orders are declared once; ints, uints and doubles compare with each other.
        let declared = if matches!(name, "_<=_" | "_>_" | "_>=_") { "_<_" } else { name };
        if declared == "_<_" && types.iter().all(|type_| type_.is_number() || *type_ == Type::Dyn) {
            return Type::Bool;
        }
        let Some(signatures) = signatures::all(self.environment.libraries).get(declared) else {
            return self.undeclared(offset, name);
        };
        let mut result: Option<Type> = None;
        for signature in signatures.iter().filter(|signature| signature.method == is_method) {
            if let Some(type_) = apply(signature, &types) {
                result = Some(match result {
                    // Several fit only because something is not known yet.
                    Some(before) if before != type_ => Type::Dyn,
                    _ => type_,
                });
            }
        }
        result.unwrap_or_else(|| self.no_overload(offset, name, &types, is_method))
    }

    fn no_overload(&mut self, offset: usize, name: &str, types: &[Type], is_method: bool) -> Type {
        let texts: Vec<String> = types.iter().map(Type::to_string).collect();
        let applied = match (is_method, texts.split_first()) {
            (true, Some((target, args))) => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", texts.join(", ")),
        };
        self.error(offset, format!("found no matching overload for '{name}' applied to '{applied}'"))
    }

    fn macro_call(&mut self, call: &Macro, offset: usize) -> Type {
        let range = self.type_of(&call.range);
        if matches!(call.kind, MacroKind::OptMap | MacroKind::OptFlatMap) {
            let (of, was_optional) = unwrapped(range.clone());
            if !was_optional && range != Type::Dyn {
                return self.error(offset, format!("expected type 'optional_type' but found '{range}'"));
            }
            let body = self.within(call, vec![of]).1;
            return if call.kind == MacroKind::OptMap { Type::optional(body) } else { body };
        }
        let vars = match (&range, call.vars.len()) {
            (Type::List(of), 1) => vec![(**of).clone()],
            (Type::List(of), _) => vec![Type::Int, (**of).clone()],
            (Type::Map(key, _), 1) => vec![(**key).clone()],
            (Type::Map(key, value), _) => vec![(**key).clone(), (**value).clone()],
            (Type::Dyn, _) => vec![Type::Dyn; call.vars.len()],
            (other, _) => {
                return self.error(
                    call.range.offset,
                    format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"),
                );
            }
        };
        let (filter, body) = self.within(call, vars);
        let must_be_bool = match call.kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne | MacroKind::Filter => {
                Some((&body, &call.body))
            }
            _ => filter.as_ref().zip(call.filter.as_ref()),
        };
        let found = must_be_bool.map(|(type_, _)| type_.clone());
        if let Some(type_) = found.filter(|type_| !matches!(type_, Type::Bool | Type::Dyn))
            && !matches!(call.kind, MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne)
        {
            // Upstream expands these to a choice between the list with and without the item.
            let list = match (call.kind, &range) {
                (MacroKind::Filter, list) => list.clone(),
                _ => Type::list(body),
            };
            return self.no_overload(offset, "_?_:_", &[type_, list.clone(), list], false);
        }
        if let Some((type_, part)) = must_be_bool
            && !matches!(type_, Type::Bool | Type::Dyn)
        {
            let (type_, at) = (type_.to_string(), part.offset);
            return self.error(at, format!("expected type 'bool' but found '{type_}'"));
        }
        match call.kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => Type::Bool,
            MacroKind::Filter | MacroKind::SortBy => match range {
                Type::Map(key, _) => Type::List(key),
                list => list,
            },
            MacroKind::Map | MacroKind::TransformList => Type::list(body),
            MacroKind::TransformMap => match range {
                Type::Map(key, _) => Type::Map(key, body.into()),
                Type::List(_) => Type::map(Type::Int, body),
                _ => Type::map(Type::Dyn, body),
            },
            MacroKind::TransformMapEntry => body,
            MacroKind::OptMap | MacroKind::OptFlatMap => Type::Dyn,
        }
    }

    /// The types of filter and body where the macro's variables are known.
    fn within(&mut self, call: &Macro, vars: Vec<Type>) -> (Option<Type>, Type) {
        let before = self.scopes.len();
        self.scopes.extend(call.vars.iter().cloned().zip(vars));
        let filter = call.filter.as_ref().map(|filter| self.type_of(filter));
        let body = self.type_of(&call.body);
        self.scopes.truncate(before);
        (filter, body)
    }
}

fn of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn unwrapped(type_: Type) -> (Type, bool) {
    match type_ {
        Type::Optional(of) => ((*of).clone(), true),
        other => (other, false),
    }
}

/// `a.b.c`, if the expression is nothing but names.
pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, optional: false } => {
            Some(format!("{}.{field}", qualified_name(operand)?))
        }
        _ => None,
    }
}

fn qualified_type(expr: &Expr) -> Option<Type> {
    let name = qualified_name(expr)?;
    TYPE_NAMES.contains(&name.as_str()).then_some(Type::Type)
}

/// The result of a call with these types; none if it does not fit.
fn apply(signature: &Signature, types: &[Type]) -> Option<Type> {
    if signature.params.len() != types.len() {
        return None;
    }
    let mut bound = HashMap::new();
    for (param, type_) in signature.params.iter().zip(types) {
        fits(param, type_, &mut bound)?;
    }
    Some(substitute(&signature.result, &bound))
}

fn fits(param: &Type, type_: &Type, bound: &mut HashMap<char, Type>) -> Option<()> {
    match (param, type_) {
        (Type::Param(name), type_) => {
            let joined = match bound.get(name) {
                Some(before) => join(before, type_)?,
                None => type_.clone(),
            };
            bound.insert(*name, joined);
            Some(())
        }
        (_, Type::Dyn) | (Type::Dyn, _) => Some(()),
        (Type::List(param), Type::List(of)) | (Type::Optional(param), Type::Optional(of)) => {
            fits(param, of, bound)
        }
        (Type::Map(key, value), Type::Map(of_key, of_value)) => {
            fits(key, of_key, bound)?;
            fits(value, of_value, bound)
        }
        // An object is found by its field names like a map of strings.
        (Type::Map(key, value), Type::Object(_)) => {
            fits(key, &Type::String, bound)?;
            fits(value, &Type::Dyn, bound)
        }
        // Protobuf's messages may be null, and these two are messages.
        (Type::Timestamp | Type::Duration, Type::Null) => Some(()),
        (param, type_) => (param == type_).then_some(()),
    }
}

fn substitute(type_: &Type, bound: &HashMap<char, Type>) -> Type {
    match type_ {
        Type::Param(name) => bound.get(name).cloned().unwrap_or(Type::Dyn),
        Type::List(of) => Type::list(substitute(of, bound)),
        Type::Optional(of) => Type::optional(substitute(of, bound)),
        Type::Map(key, value) => Type::map(substitute(key, bound), substitute(value, bound)),
        other => other.clone(),
    }
}

/// The type of a place that holds both; none if nothing does.
fn join(left: &Type, right: &Type) -> Option<Type> {
    match (left, right) {
        (left, right) if left == right => Some(left.clone()),
        (Type::Dyn, _) | (_, Type::Dyn) => Some(Type::Dyn),
        (Type::List(left), Type::List(right)) => join(left, right).map(Type::list),
        (Type::Optional(left), Type::Optional(right)) => join(left, right).map(Type::optional),
        (Type::Map(left_key, left), Type::Map(right_key, right)) => {
            Some(Type::map(join(left_key, right_key)?, join(left, right)?))
        }
        // Null may stand for anything that is not a plain value.
        (Type::Null, other) | (other, Type::Null) => {
            let plain = matches!(
                other,
                Type::Bool
                    | Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::String
                    | Type::Bytes
                    | Type::List(_)
                    | Type::Map(..)
            );
            (!plain).then(|| other.clone())
        }
        (Type::Object(_), Type::Map(..)) | (Type::Map(..), Type::Object(_)) => Some(Type::Dyn),
        _ => None,
    }
}
