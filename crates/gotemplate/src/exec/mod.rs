//! Executing trees: the walk over nodes. How values are computed is in `eval`, how functions are called in `call`.

mod builtin;
mod call;
mod compare;
mod escape;
mod eval;
mod field;
mod index;

use std::sync::Arc;

use crate::context::{Context, Session};
use crate::error::{Error, Limit};
use crate::fmt;
use crate::node::{Branch, Node, Pipe, Place, Symbol, Tree};
use crate::set::{Set, Template};
use crate::strconv;
use crate::value::{Func, List, Map, Sequence, Value};

pub use builtin::Builtin;
pub use compare::deep_equal;

/// Executes a template and returns what it wrote.
pub fn execute(
    set: &Arc<Set>,
    session: &Session<'_>,
    template: &Arc<Template>,
    data: &Value,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let result = enter(set, session, template, Slot::plain(data.clone()), &mut out);
    // From here on the output is the caller's to count.
    let counted = session.memory.wrote(-(out.len() as i64), session.limits());
    result.map_err(|error| *error)?;
    counted.map_err(|limit| {
        Error::execute(&template.name, format!("template: {}: {limit}", template.name), Some(limit))
    })?;
    Ok(out)
}

/// Errors are boxed, since results pass through every level of the recursion.
type Exec<T> = Result<T, Box<Error>>;

/// A value and whether Go would hold it in an `interface {}`: error texts name that type then.
#[derive(Clone)]
struct Slot {
    value: Value,
    in_interface: bool,
}

impl Slot {
    fn plain(value: Value) -> Self {
        Self { value, in_interface: false }
    }
}

struct Variable {
    symbol: Symbol,
    slot: Slot,
}

/// How a list of nodes was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// One template being executed.
struct State<'a> {
    ctx: Context<'a>,
    tree: &'a Tree,
    out: &'a mut Vec<u8>,
    variables: Vec<Variable>,
    /// What is being worked on, for errors.
    at: Place<'a>,
    /// Argument lists that are free to be used again.
    spare: Vec<Vec<Value>>,
}

fn enter(
    set: &Arc<Set>,
    session: &Session<'_>,
    template: &Arc<Template>,
    dot: Slot,
    out: &mut Vec<u8>,
) -> Exec<()> {
    let depth = session.depth.get();
    if depth >= session.limits().depth {
        let limit = Limit::Depth(session.limits().depth);
        return Err(Box::new(Error::execute(
            &template.name,
            format!("template: {}: {limit}", template.name),
            Some(limit),
        )));
    }
    session.depth.set(depth + 1);
    let result = crate::stack::grow(|| {
        let mut state = State {
            ctx: Context { session, set, template: &template.name },
            tree: &template.tree,
            out,
            variables: vec![Variable { symbol: 0, slot: dot.clone() }],
            at: Place::Nowhere,
            spare: Vec::new(),
        };
        state.walk_list(&dot, &template.tree.root).map(|_| ())
    });
    session.depth.set(depth);
    result
}

impl<'a> State<'a> {
    /// An error at the current place, in Go's words.
    fn error<T>(&self, message: impl std::fmt::Display) -> Exec<T> {
        Err(self.failure(message, None))
    }

    fn limit<T>(&self, limit: Limit) -> Exec<T> {
        Err(self.failure(limit, Some(limit)))
    }

    #[cold]
    fn failure(&self, message: impl std::fmt::Display, limit: Option<Limit>) -> Box<Error> {
        let name = self.ctx.template;
        let text = match self.at.pos() {
            None => format!("template: {name}: {message}"),
            Some(pos) => {
                let before = &self.tree.text.as_bytes()[..pos as usize];
                let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
                let column = match before.iter().rposition(|&b| b == b'\n') {
                    Some(newline) => before.len() - newline - 1,
                    None => before.len(),
                };
                let quoted = strconv::quote(name.as_bytes());
                let parse_name = &self.tree.parse_name;
                format!(
                    "template: {parse_name}:{line}:{column}: executing {quoted} at <{}>: {message}",
                    self.at
                )
            }
        };
        Box::new(Error::execute(name, text, limit))
    }

    fn step(&self) -> Exec<()> {
        match self.ctx.session.step() {
            Ok(()) => Ok(()),
            Err(limit) => self.limit(limit),
        }
    }

    fn walk_list(&mut self, dot: &Slot, nodes: &'a [Node]) -> Exec<Flow> {
        for node in nodes {
            let flow = self.walk(dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn walk(&mut self, dot: &Slot, node: &'a Node) -> Exec<Flow> {
        self.step()?;
        match node {
            Node::Text(text) => {
                let before = self.out.len();
                self.out.extend_from_slice(text.as_str().as_bytes());
                self.check_output(before)?;
            }
            Node::Action { pipe, .. } => {
                self.at = Place::Node(node);
                let value = self.pipeline(dot, pipe)?;
                if pipe.declares.is_empty() {
                    self.print(node, &value)?;
                    self.ctx.session.memory.dropped(&value);
                }
            }
            Node::If(branch) => return self.branch(dot, node, branch, false),
            Node::With(branch) => return self.branch(dot, node, branch, true),
            Node::Range(branch) => return self.range(dot, node, branch),
            Node::Template { name, pipe, .. } => self.template(dot, node, name, pipe.as_ref())?,
            Node::Break { .. } => return Ok(Flow::Break),
            Node::Continue { .. } => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn check_output(&self, before: usize) -> Exec<()> {
        let session = self.ctx.session;
        let most = session.limits().value_bytes;
        if self.out.len() > most {
            return self.limit(Limit::ValueSize(most));
        }
        let grown = self.out.len() - before;
        session.memory.wrote(grown as i64, session.limits()).or_else(|limit| self.limit(limit))
    }

    fn print(&mut self, node: &'a Node, value: &Value) -> Exec<()> {
        self.at = Place::Node(node);
        let before = self.out.len();
        match value {
            Value::String(text) => self.out.extend_from_slice(text.as_bytes()),
            Value::NoValue => self.out.extend_from_slice(b"<no value>"),
            Value::Func(_) => return self.error(format!("can't print {node} of type {}", value.type_of())),
            other => {
                let room = self.ctx.session.limits().value_bytes;
                if let Err(limit) = fmt::print_pointed_to(self.out, other, room) {
                    return self.limit(limit);
                }
            }
        }
        self.check_output(before)
    }

    fn branch(&mut self, dot: &Slot, node: &'a Node, branch: &'a Branch, sets_dot: bool) -> Exec<Flow> {
        self.at = Place::Node(node);
        let mark = self.variables.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let flow = if value.truth() {
            if sets_dot {
                self.nested(&Slot::plain(value), &branch.list)
            } else {
                self.nested(dot, &branch.list)
            }
        } else {
            match &branch.otherwise {
                Some(list) => self.nested(dot, list),
                None => Ok(Flow::Next),
            }
        }?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn nested(&mut self, dot: &Slot, list: &'a [Node]) -> Exec<Flow> {
        crate::stack::grow(|| self.walk_list(dot, list))
    }

    fn template(&mut self, dot: &Slot, node: &'a Node, name: &Arc<str>, pipe: Option<&'a Pipe>) -> Exec<()> {
        self.at = Place::Node(node);
        let Some(template) = self.ctx.set.lookup(name) else {
            return self.error(format!("template {} not defined", strconv::quote(name.as_bytes())));
        };
        let session = self.ctx.session;
        if session.depth.get() >= session.limits().depth {
            return self.limit(Limit::Depth(session.limits().depth));
        }
        let dot = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Value::NoValue,
        };
        enter(self.ctx.set, session, &template, Slot::plain(dot), self.out)
    }

    fn range(&mut self, dot: &Slot, node: &'a Node, branch: &'a Branch) -> Exec<Flow> {
        self.at = Place::Node(node);
        let mark = self.variables.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let ran = match &value {
            Value::NoValue | Value::Nil => false,
            Value::List(list) => self.range_list(branch, list)?,
            Value::Map(map) => self.range_map(branch, map)?,
            Value::Bytes(bytes) => self.range_bytes(branch, bytes)?,
            Value::Func(func) => self.range_func(branch, func, &value)?,
            Value::Object(object) if object.entries().is_some() => {
                self.range_entries(branch, object.entries().unwrap_or_default())?
            }
            value => self.range_number(branch, value)?,
        };
        let mut flow = Flow::Next;
        if !ran && let Some(list) = &branch.otherwise {
            flow = self.nested(dot, list)?;
        }
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn range_list(&mut self, branch: &'a Branch, list: &List) -> Exec<bool> {
        let in_interface = list.type_of().element().is_interface();
        for (at, item) in list.iter().enumerate() {
            let element = Slot { value: item.clone(), in_interface };
            if self.turn(branch, Slot::plain(Value::Int(at as i64)), element)? == Flow::Break {
                break;
            }
        }
        Ok(!list.is_empty())
    }

    fn range_map(&mut self, branch: &'a Branch, map: &Map) -> Exec<bool> {
        let in_interface = map.type_of().element().is_interface();
        // As in Go, the loop walks over what the map held when it began.
        let entries = map.snapshot();
        for (key, value) in &entries {
            let element = Slot { value: value.clone(), in_interface };
            if self.turn(branch, Slot::plain(Value::String(key.clone())), element)? == Flow::Break {
                break;
            }
        }
        Ok(!entries.is_empty())
    }

    fn range_entries(&mut self, branch: &'a Branch, entries: Vec<(Value, Value)>) -> Exec<bool> {
        let any = !entries.is_empty();
        for (key, value) in entries {
            if self.turn(branch, Slot::plain(key), Slot::plain(value))? == Flow::Break {
                break;
            }
        }
        Ok(any)
    }

    fn range_bytes(&mut self, branch: &'a Branch, bytes: &[u8]) -> Exec<bool> {
        for (at, byte) in bytes.iter().enumerate() {
            let index = Slot::plain(Value::Int(at as i64));
            if self.turn(branch, index, Slot::plain(Value::Uint8(*byte)))? == Flow::Break {
                break;
            }
        }
        Ok(!bytes.is_empty())
    }

    fn range_number(&mut self, branch: &'a Branch, value: &Value) -> Exec<bool> {
        let count = match (value.as_int(), value.as_uint()) {
            (Some(count), _) => u64::try_from(count).unwrap_or(0),
            (None, Some(count)) => count,
            (None, None) => return self.error(format!("range can't iterate over {}", iterated(value))),
        };
        if branch.pipe.declares.len() > 1 {
            let shown = fmt::show(value);
            return self.error(format!("can't use {shown} to iterate over more than one variable"));
        }
        for at in 0..count {
            let element = match value {
                Value::Int(_) => Value::Int(at as i64),
                Value::Int32(_) => Value::Int32(at as i32),
                Value::Duration(_) => Value::Duration(crate::time::Duration(at as i64)),
                Value::Uint8(_) => Value::Uint8(at as u8),
                Value::Uint32(_) => Value::Uint32(at as u32),
                Value::Uint64(_) => Value::Uint64(at),
                _ => Value::Int64(at as i64),
            };
            if self.turn(branch, Slot::plain(Value::NoValue), Slot::plain(element))? == Flow::Break {
                break;
            }
        }
        Ok(count > 0)
    }

    fn range_func(&mut self, branch: &'a Branch, func: &Func, value: &Value) -> Exec<bool> {
        let declared = branch.pipe.declares.len();
        let (walk, two) = match &func.sequence {
            Some(Sequence::One(_)) if declared > 1 => {
                return self
                    .error(format!("can't use {} iterate over more than one variable", fmt::show(value)));
            }
            Some(Sequence::One(walk)) => (walk, false),
            Some(Sequence::Two(walk)) => (walk, true),
            None => return self.error(format!("range can't iterate over {}", iterated(value))),
        };
        let mut ran = false;
        let mut result = Ok(Flow::Next);
        walk(&mut |first, second| {
            ran = true;
            let (index, element) = match (two, declared > 1) {
                (true, true) => (first, second),
                // With one variable, the first value of a pair is the element.
                _ => (Value::NoValue, first),
            };
            result = self.turn(branch, Slot::plain(index), Slot::plain(element));
            matches!(result, Ok(Flow::Next | Flow::Continue))
        });
        result?;
        Ok(ran)
    }

    /// One turn of a loop; `Break` if it was the last.
    fn turn(&mut self, branch: &'a Branch, index: Slot, element: Slot) -> Exec<Flow> {
        self.step()?;
        let declares = &branch.pipe.declares;
        let mark = self.variables.len();
        match (declares.as_slice(), branch.pipe.assign) {
            ([], _) => {}
            ([one], true) => self.assign(one, element.clone())?,
            ([one, two, ..], true) => {
                self.assign(one, index)?;
                self.assign(two, element.clone())?;
            }
            ([_], false) => self.variables[mark - 1].slot = element.clone(),
            ([_, _, ..], false) => {
                self.variables[mark - 1].slot = element.clone();
                self.variables[mark - 2].slot = index;
            }
        }
        let flow = self.nested(&element, &branch.list)?;
        self.variables.truncate(mark);
        Ok(if flow == Flow::Break { Flow::Break } else { Flow::Next })
    }
}

/// A value that has no elements, as an error shows it: by its fields, whatever its methods say.
fn iterated(value: &Value) -> String {
    let value = match value {
        Value::Object(object) => object.as_argument().unwrap_or_else(|| value.clone()),
        other => other.clone(),
    };
    let mut shown = Vec::new();
    // Too long for an error is long enough.
    let _ = fmt::print_pointed_to(&mut shown, &value, 1 << 20);
    String::from_utf8_lossy(&shown).into_owned()
}
