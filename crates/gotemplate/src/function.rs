//! Functions a template can call: their parameters, and the table a set of templates is parsed against.
//!
//! A function is a plain `fn`: whatever it needs of the world it finds in the [`Context`]. So a table is shared by
//! threads and a parsed template can hold positions in it instead of names.

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{Context, Failure};
use crate::value::{Type, Value};

/// The parameters of a function or method.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    pub params: &'static [Type],
    /// The type of each further argument, for a function that takes any number.
    pub variadic: Option<Type>,
}

impl Signature {
    pub const fn new(params: &'static [Type]) -> Self {
        Self { params, variadic: None }
    }

    pub const fn variadic(params: &'static [Type], rest: Type) -> Self {
        Self { params, variadic: Some(rest) }
    }
}

/// What runs when a function is called. The arguments have the types of the signature, and their number.
pub type Call = fn(&Context<'_>, &[Value]) -> Result<Value, Failure>;

/// A function by name.
#[derive(Clone, Copy)]
pub struct Function {
    pub name: &'static str,
    pub signature: Signature,
    pub call: Call,
}

impl Function {
    pub const fn new(name: &'static str, params: &'static [Type], call: Call) -> Self {
        Self { name, signature: Signature::new(params), call }
    }

    pub const fn variadic(name: &'static str, params: &'static [Type], rest: Type, call: Call) -> Self {
        Self { name, signature: Signature::variadic(params, rest), call }
    }
}

/// The functions that templates may call, by name. Go's builtin functions are always there.
#[derive(Clone, Default)]
pub struct Functions {
    table: Vec<Function>,
    by_name: HashMap<&'static str, u32>,
}

impl Functions {
    /// Go's builtin functions only.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Go's builtin functions and sprig's.
    pub fn sprig() -> Self {
        Self::builtin().with(crate::sprig::FUNCTIONS.iter().flat_map(|group| group.iter().copied()))
    }

    /// Adds functions; one of the same name is replaced.
    pub fn with(mut self, functions: impl IntoIterator<Item = Function>) -> Self {
        for function in functions {
            self.add(function);
        }
        self
    }

    /// Takes a function away, so that templates that call it do not parse.
    pub fn without(mut self, names: &[&'static str]) -> Self {
        for name in names {
            self.by_name.remove(*name);
        }
        self
    }

    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_name.keys().copied()
    }

    fn add(&mut self, function: Function) {
        match self.by_name.get(function.name) {
            Some(&at) => self.table[at as usize] = function,
            None => {
                let at =
                    u32::try_from(self.table.len()).expect("a function table has fewer than 2^32 entries");
                self.table.push(function);
                self.by_name.insert(function.name, at);
            }
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn at(&self, position: u32) -> &Function {
        &self.table[position as usize]
    }
}
