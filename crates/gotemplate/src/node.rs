//! The parsed form of a template. Its `Display` is what Go shows between `<` and `>` in errors.
//!
//! Trees hold no values, only constants, so that they can be kept and shared by threads.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use crate::exec::Builtin;
use crate::strconv;
use crate::value::Str;

/// One template: the text itself, or a `define` or `block` within it.
pub struct Tree {
    pub name: Arc<str>,
    /// The name of the text it was found in; positions refer to that.
    pub parse_name: Arc<str>,
    pub text: Arc<str>,
    pub root: Vec<Node>,
}

/// A piece of a text, shared with it.
pub struct Excerpt {
    pub of: Arc<str>,
    pub start: Pos,
    pub end: Pos,
}

impl Excerpt {
    pub fn as_str(&self) -> &str {
        &self.of[self.start as usize..self.end as usize]
    }
}

/// A byte position in the text.
pub type Pos = u32;

pub enum Node {
    Text(Excerpt),
    Action { pos: Pos, pipe: Pipe },
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { pos: Pos, name: Arc<str>, pipe: Option<Pipe> },
    Break { pos: Pos },
    Continue { pos: Pos },
}

pub struct Branch {
    pub pipe: Pipe,
    pub list: Vec<Node>,
    pub otherwise: Option<Vec<Node>>,
}

/// Declarations or assignments, and commands that pass their result on.
pub struct Pipe {
    pub pos: Pos,
    pub assign: bool,
    pub declares: Vec<Declared>,
    pub commands: Vec<Command>,
}

/// A variable before `:=` or `=`.
pub struct Declared {
    pub symbol: Symbol,
    pub name: Str,
}

/// A variable's name as a number: equal names of a parsed text have equal numbers. 0 is `$`.
pub type Symbol = u32;

pub struct Command {
    pub pos: Pos,
    pub args: Vec<Operand>,
}

pub enum Operand {
    Function { pos: Pos, name: &'static str, function: FunctionRef },
    Field { pos: Pos, fields: Vec<Str> },
    Variable { pos: Pos, symbol: Symbol, name: Str, fields: Vec<Str> },
    Dot { pos: Pos },
    Nil { pos: Pos },
    Bool { pos: Pos, value: bool },
    Number { pos: Pos, number: Box<Number> },
    String { pos: Pos, quoted: Excerpt, text: Str },
    Pipe(Box<Pipe>),
    Chain { pos: Pos, node: Box<Operand>, fields: Vec<Str> },
}

/// Which function an identifier stands for.
#[derive(Clone, Copy)]
pub enum FunctionRef {
    /// A position in the set's table.
    Table(u32),
    /// One of Go's own, if the table has none of that name.
    Builtin(Builtin),
}

/// A numeric constant, in every type it fits.
pub struct Number {
    pub text: Box<str>,
    pub int: Option<i64>,
    pub uint: Option<u64>,
    pub float: Option<f64>,
    pub complex: Option<(f64, f64)>,
}

impl Operand {
    pub fn pos(&self) -> Pos {
        match self {
            Self::Function { pos, .. }
            | Self::Field { pos, .. }
            | Self::Variable { pos, .. }
            | Self::Dot { pos }
            | Self::Nil { pos }
            | Self::Bool { pos, .. }
            | Self::Number { pos, .. }
            | Self::String { pos, .. }
            | Self::Chain { pos, .. } => *pos,
            Self::Pipe(pipe) => pipe.pos,
        }
    }
}

impl Tree {
    /// Whether it has nothing but space, so that it replaces no other definition.
    pub fn is_empty(&self) -> bool {
        self.root.iter().all(|node| match node {
            Node::Text(text) => text.as_str().chars().all(crate::unicode::is_space),
            _ => false,
        })
    }
}

/// What was being worked on when an error occurred.
#[derive(Clone, Copy)]
pub enum Place<'t> {
    Nowhere,
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Operand(&'t Operand),
}

impl Place<'_> {
    /// Where it is, unless it is nowhere.
    pub fn pos(&self) -> Option<Pos> {
        Some(match self {
            Self::Nowhere => return None,
            Self::Node(node) => node.pos()?,
            Self::Pipe(pipe) => pipe.pos,
            Self::Command(command) => command.pos,
            Self::Operand(operand) => operand.pos(),
        })
    }
}

impl Node {
    fn pos(&self) -> Option<Pos> {
        match self {
            Self::Text(_) => None,
            Self::Action { pos, .. }
            | Self::Template { pos, .. }
            | Self::Break { pos }
            | Self::Continue { pos } => Some(*pos),
            Self::If(branch) | Self::With(branch) | Self::Range(branch) => Some(branch.pipe.pos),
        }
    }
}

impl Display for Place<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => Ok(()),
            Self::Node(node) => node.fmt(f),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Operand(operand) => operand.fmt(f),
        }
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text.as_str()),
            Self::Action { pipe, .. } => write!(f, "{{{{{pipe}}}}}"),
            Self::If(branch) => branch.show(f, "if"),
            Self::With(branch) => branch.show(f, "with"),
            Self::Range(branch) => branch.show(f, "range"),
            Self::Template { name, pipe, .. } => {
                write!(f, "{{{{template {}", strconv::quote(name.as_bytes()))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Self::Break { .. } => f.write_str("{{break}}"),
            Self::Continue { .. } => f.write_str("{{continue}}"),
        }
    }
}

impl Branch {
    fn show(&self, f: &mut Formatter<'_>, keyword: &str) -> fmt::Result {
        write!(f, "{{{{{keyword} {}}}}}", self.pipe)?;
        self.list.iter().try_for_each(|node| node.fmt(f))?;
        if let Some(otherwise) = &self.otherwise {
            f.write_str("{{else}}")?;
            otherwise.iter().try_for_each(|node| node.fmt(f))?;
        }
        f.write_str("{{end}}")
    }
}

impl Display for Pipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, declared) in self.declares.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            declared.name.fmt(f)?;
        }
        if !self.declares.is_empty() {
            f.write_str(if self.assign { " = " } else { " := " })?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            if at > 0 {
                f.write_str(" | ")?;
            }
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, arg) in self.args.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            match arg {
                Operand::Pipe(pipe) => write!(f, "({pipe})")?,
                other => other.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { name, .. } => f.write_str(name),
            Self::Field { fields, .. } => show_fields(f, fields),
            Self::Variable { name, fields, .. } => {
                name.fmt(f)?;
                show_fields(f, fields)
            }
            Self::Dot { .. } => f.write_str("."),
            Self::Nil { .. } => f.write_str("nil"),
            Self::Bool { value, .. } => write!(f, "{value}"),
            Self::Number { number, .. } => f.write_str(&number.text),
            Self::String { quoted, .. } => f.write_str(quoted.as_str()),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Chain { node, fields, .. } => {
                match &**node {
                    Self::Pipe(pipe) => write!(f, "({pipe})")?,
                    other => other.fmt(f)?,
                }
                show_fields(f, fields)
            }
        }
    }
}

fn show_fields(f: &mut Formatter<'_>, fields: &[Str]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}
