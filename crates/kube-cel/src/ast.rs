//! What an expression is once parsed. Macros are nodes of their own: they are run, not expanded.

use crate::value::Literal;

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    /// Where errors about it point: an operator's sign, a call's parenthesis, a selection's dot.
    pub(crate) offset: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        operand: Box<Expr>,
        field: String,
    },
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// A function or a method; operators too, under CEL's names (`_+_`).
    Call {
        name: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Choose {
        condition: Box<Expr>,
        yes: Box<Expr>,
        no: Box<Expr>,
    },
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Macro(Box<Macro>),
}

#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) kind: MacroKind,
    pub(crate) range: Expr,
    /// One variable, or index and value (key and value for maps).
    pub(crate) vars: Vec<String>,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformList,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
}
