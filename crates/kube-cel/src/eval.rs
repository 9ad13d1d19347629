//! Running an expression. Every step costs; running out of budget ends it.

use std::collections::BTreeMap;

use crate::ast::{Expr, Kind, Macro, MacroKind};
use crate::check::{TYPE_NAMES, qualified_name};
use crate::libraries;
use crate::signatures;
use crate::value::{Key, List, Map, Value};
use crate::{Bindings, EvalError, Libraries};

/// How often the caller is asked whether to go on.
const ASK_EVERY: u64 = 4096;

pub(crate) type Answer<'a> = Result<Value<'a>, EvalError>;

pub(crate) struct Run<'a, 'b> {
    bindings: &'b Bindings<'a>,
    scopes: Vec<(&'b str, Value<'a>)>,
    spent: u64,
    limit: u64,
    pub(crate) libraries: Libraries,
}

impl<'a, 'b> Run<'a, 'b> {
    pub(crate) fn new(bindings: &'b Bindings<'a>, limit: u64, libraries: Libraries) -> Self {
        Run { bindings, scopes: Vec::new(), spent: 0, limit, libraries }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Pays for work; `units` grows with what is looked at.
    pub(crate) fn pay(&mut self, units: u64) -> Result<(), EvalError> {
        let before = self.spent / ASK_EVERY;
        self.spent = self.spent.saturating_add(units);
        if self.spent > self.limit {
            return Err(EvalError::CostLimit);
        }
        if self.spent / ASK_EVERY != before && self.bindings.is_cancelled() {
            return Err(EvalError::Cancelled);
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<Value<'a>> {
        let local = self.scopes.iter().rev().find(|(local, _)| *local == name);
        local.map(|(_, value)| value.clone()).or_else(|| self.bindings.get(name))
    }

    pub(crate) fn eval(&mut self, expr: &'b Expr) -> Answer<'a> {
        self.pay(1)?;
        match &expr.kind {
            Kind::Literal(literal) => Ok(Value::of_literal(literal)),
            Kind::Ident(name) => match self.variable(name) {
                Some(value) => Ok(value),
                None if TYPE_NAMES.contains(&name.as_str()) => Ok(Value::Type(name.as_str().into())),
                None => Err(EvalError::NoSuchAttribute(name.clone())),
            },
            Kind::Select { operand, field, optional } => {
                if let Some(name) = qualified_name(expr).filter(|name| TYPE_NAMES.contains(&name.as_str())) {
                    return Ok(Value::Type(name.into()));
                }
                let of = self.eval(operand)?;
                select(of, field, *optional)
            }
            Kind::Has { operand, field } => match self.eval(operand)? {
                Value::Map(map) => Ok(Value::Bool(map.field(field).is_some())),
                Value::Optional(None) => Ok(Value::Bool(false)),
                Value::Optional(Some(value)) => match *value {
                    Value::Map(map) => Ok(Value::Bool(map.field(field).is_some())),
                    _ => Err(EvalError::NoSuchOverload),
                },
                _ => Err(EvalError::NoSuchOverload),
            },
            Kind::Index { operand, index, optional } => {
                let of = self.eval(operand)?;
                let by = self.eval(index)?;
                index_of(of, &by, *optional)
            }
            Kind::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Kind::And(left, right) => self.logic(left, right, false),
            Kind::Or(left, right) => self.logic(left, right, true),
            Kind::Choose { condition, yes, no } => match self.eval(condition)? {
                Value::Bool(true) => self.eval(yes),
                Value::Bool(false) => self.eval(no),
                _ => Err(EvalError::NoSuchOverload),
            },
            Kind::List(items) => {
                let mut out = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    match (self.eval(item)?, optional) {
                        (Value::Optional(None), true) => {}
                        (Value::Optional(Some(value)), true) => out.push(*value),
                        (_, true) => return Err(EvalError::NoSuchOverload),
                        (value, false) => out.push(value),
                    }
                }
                Ok(Value::list(out))
            }
            Kind::Map(entries) => self.map_literal(entries),
            Kind::Macro(call) => self.macro_call(call),
        }
    }

    fn map_literal(&mut self, entries: &'b [(Expr, Expr, bool)]) -> Answer<'a> {
        let mut out = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let key = key.to_key().ok_or_else(|| EvalError::message("unsupported key type"))?;
            let value = match (self.eval(value)?, optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(value)), true) => *value,
                (_, true) => return Err(EvalError::NoSuchOverload),
                (value, false) => value,
            };
            out.insert(key, value);
        }
        Ok(Value::map(out))
    }

    /// `&&` and `||`: the deciding side wins even if the other one fails.
    fn logic(&mut self, left: &'b Expr, right: &'b Expr, deciding: bool) -> Answer<'a> {
        let first = self.eval(left);
        if let Ok(Value::Bool(value)) = first
            && value == deciding
        {
            return Ok(Value::Bool(deciding));
        }
        stop(&first)?;
        let second = self.eval(right);
        stop(&second)?;
        match (first, second) {
            (_, Ok(Value::Bool(value))) if value == deciding => Ok(Value::Bool(deciding)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(value))) => Ok(Value::Bool(value)),
            (Err(error), _) => Err(error),
            (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn call(&mut self, name: &'b str, target: Option<&'b Expr>, args: &'b [Expr]) -> Answer<'a> {
        if let Some(target) = target
            && let Some(namespace) = qualified_name(target)
            && self.variable(namespace.split('.').next().unwrap_or("")).is_none()
        {
            let full = format!("{namespace}.{name}");
            if signatures::all(self.libraries).contains_key(&full) {
                let values = self.all(args)?;
                return libraries::call(self, &full, false, values);
            }
        }
        // Nothing is computed that an optional's value makes needless.
        if let (Some(target), "or" | "orValue", [other]) = (target, name, args) {
            return match (self.eval(target)?, name) {
                (Value::Optional(Some(value)), "orValue") => Ok(*value),
                (Value::Optional(None), _) => self.eval(other),
                (some @ Value::Optional(Some(_)), _) => Ok(some),
                _ => Err(EvalError::NoSuchOverload),
            };
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target {
            values.push(self.eval(target)?);
        }
        values.extend(self.all(args)?);
        libraries::call(self, name, target.is_some(), values)
    }

    fn all(&mut self, args: &'b [Expr]) -> Result<Vec<Value<'a>>, EvalError> {
        args.iter().map(|arg| self.eval(arg)).collect()
    }

    fn macro_call(&mut self, call: &'b Macro) -> Answer<'a> {
        let range = self.eval(&call.range)?;
        if matches!(call.kind, MacroKind::OptMap | MacroKind::OptFlatMap) {
            let Value::Optional(value) = range else { return Err(EvalError::NoSuchOverload) };
            let Some(value) = value else { return Ok(Value::Optional(None)) };
            let body = self.with(call, vec![*value], &call.body)?;
            return Ok(if call.kind == MacroKind::OptMap { Value::some(body) } else { body });
        }
        let rounds = rounds(&range, call.vars.len())?;
        match call.kind {
            MacroKind::All => self.quantified(call, rounds, false),
            MacroKind::Exists => self.quantified(call, rounds, true),
            MacroKind::ExistsOne => {
                let mut count = 0;
                for vars in rounds {
                    count += u64::from(self.test(call, vars, &call.body)?);
                }
                Ok(Value::Bool(count == 1))
            }
            MacroKind::Filter => {
                let mut out = Vec::new();
                for vars in rounds {
                    let item = vars.last().cloned().unwrap_or(Value::Null);
                    if self.test(call, vars, &call.body)? {
                        out.push(item);
                    }
                }
                Ok(Value::list(out))
            }
            MacroKind::Map | MacroKind::TransformList => {
                let mut out = Vec::new();
                for vars in rounds {
                    if self.passes(call, &vars)? {
                        out.push(self.with(call, vars, &call.body)?);
                    }
                }
                Ok(Value::list(out))
            }
            MacroKind::TransformMap => {
                let mut out = BTreeMap::new();
                for vars in rounds {
                    if self.passes(call, &vars)? {
                        let key = vars.first().and_then(Value::to_key).ok_or(EvalError::NoSuchOverload)?;
                        out.insert(key, self.with(call, vars, &call.body)?);
                    }
                }
                Ok(Value::map(out))
            }
            MacroKind::TransformMapEntry => {
                let mut out = BTreeMap::new();
                for vars in rounds {
                    if !self.passes(call, &vars)? {
                        continue;
                    }
                    let Value::Map(entry) = self.with(call, vars, &call.body)? else {
                        return Err(EvalError::NoSuchOverload);
                    };
                    for (key, value) in entry.iter() {
                        if out.contains_key(&key) {
                            return Err(EvalError::message(format!(
                                "insert failed: key {key} already exists"
                            )));
                        }
                        out.insert(key, value);
                    }
                }
                Ok(Value::map(out))
            }
            MacroKind::SortBy => {
                let mut keyed = Vec::new();
                for vars in rounds {
                    let item = vars.last().cloned().unwrap_or(Value::Null);
                    keyed.push((self.with(call, vars, &call.body)?, item));
                }
                self.pay(keyed.len() as u64)?;
                let keys: Vec<Value<'a>> = keyed.iter().map(|(key, _)| key.clone()).collect();
                libraries::must_be_ordered(&keys)?;
                keyed.sort_by(|left, right| left.0.compare(&right.0).unwrap_or(std::cmp::Ordering::Equal));
                Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
            }
            MacroKind::OptMap | MacroKind::OptFlatMap => Err(EvalError::NoSuchOverload),
        }
    }

    /// `all` (deciding false) and `exists` (deciding true): one deciding item outweighs failures of others.
    fn quantified(&mut self, call: &'b Macro, rounds: Vec<Vec<Value<'a>>>, deciding: bool) -> Answer<'a> {
        let mut failure = None;
        for vars in rounds {
            match self.test(call, vars, &call.body) {
                Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(_) => {}
                Err(error @ (EvalError::CostLimit | EvalError::Cancelled)) => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn passes(&mut self, call: &'b Macro, vars: &[Value<'a>]) -> Result<bool, EvalError> {
        match &call.filter {
            Some(filter) => self.test(call, vars.to_vec(), filter),
            None => Ok(true),
        }
    }

    fn test(&mut self, call: &'b Macro, vars: Vec<Value<'a>>, part: &'b Expr) -> Result<bool, EvalError> {
        self.with(call, vars, part)?.as_bool().ok_or(EvalError::NoSuchOverload)
    }

    fn with(&mut self, call: &'b Macro, vars: Vec<Value<'a>>, part: &'b Expr) -> Answer<'a> {
        let before = self.scopes.len();
        self.scopes.extend(call.vars.iter().map(String::as_str).zip(vars));
        let answer = self.eval(part);
        self.scopes.truncate(before);
        answer
    }
}

/// Failures that no other operand makes good.
fn stop(answer: &Answer<'_>) -> Result<(), EvalError> {
    match answer {
        Err(error @ (EvalError::CostLimit | EvalError::Cancelled)) => Err(error.clone()),
        _ => Ok(()),
    }
}

/// The variables of each round.
fn rounds<'a>(range: &Value<'a>, vars: usize) -> Result<Vec<Vec<Value<'a>>>, EvalError> {
    match range {
        Value::List(list) => Ok(list
            .iter()
            .enumerate()
            .map(|(index, item)| if vars == 1 { vec![item] } else { vec![Value::Int(index as i64), item] })
            .collect()),
        Value::Map(map) => Ok(map
            .iter()
            .map(|(key, value)| if vars == 1 { vec![key.to_value()] } else { vec![key.to_value(), value] })
            .collect()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn select<'a>(of: Value<'a>, field: &str, optional: bool) -> Answer<'a> {
    match of {
        Value::Map(map) => match map.field(field) {
            Some(value) if optional => Ok(Value::some(value)),
            Some(value) => Ok(value),
            None if optional => Ok(Value::Optional(None)),
            None => Err(EvalError::NoSuchKey(field.to_owned())),
        },
        // Selecting from an optional stays optional.
        Value::Optional(Some(value)) => select(*value, field, true),
        Value::Optional(None) => Ok(Value::Optional(None)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn index_of<'a>(of: Value<'a>, by: &Value<'_>, optional: bool) -> Answer<'a> {
    match (of, by) {
        (Value::Optional(Some(value)), by) => index_of(*value, by, true),
        (Value::Optional(None), _) => Ok(Value::Optional(None)),
        (Value::List(list), by) => item(&list, by, optional),
        (Value::Map(map), by) => entry(&map, by, optional),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn item<'a>(list: &List<'a>, by: &Value<'_>, optional: bool) -> Answer<'a> {
    let index = match by {
        Value::Int(index) => *index,
        Value::Uint(index) => i64::try_from(*index).unwrap_or(i64::MAX),
        Value::Double(index) if index.fract() == 0.0 => *index as i64,
        _ => return Err(EvalError::NoSuchOverload),
    };
    match usize::try_from(index).ok().and_then(|index| list.get(index)) {
        Some(value) if optional => Ok(Value::some(value)),
        Some(value) => Ok(value),
        None if optional => Ok(Value::Optional(None)),
        None => Err(EvalError::message(format!("index out of bounds: {index}"))),
    }
}

fn entry<'a>(map: &Map<'a>, by: &Value<'_>, optional: bool) -> Answer<'a> {
    let key: Option<Key> = by.to_key();
    match key.as_ref().and_then(|key| map.get(key)) {
        Some(value) if optional => Ok(Value::some(value)),
        Some(value) => Ok(value),
        None if optional => Ok(Value::Optional(None)),
        None => {
            let key = key.map_or_else(|| by.type_name().to_owned(), |key| key.to_string());
            Err(EvalError::NoSuchKey(key))
        }
    }
}
