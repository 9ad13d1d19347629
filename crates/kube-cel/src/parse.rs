//! Tokens into an expression.

use crate::ast::{Expr, Kind, Macro, MacroKind};
use crate::check::qualified_name;
use crate::lex::{Token, tokens};
use crate::value::Literal;
use crate::{CompileError, Libraries};

/// Expressions nested deeper than this are refused, as cel-go does at 250.
const MAX_DEPTH: usize = 100;
/// Longer expressions are refused before anything else looks at them.
const MAX_LENGTH: usize = 100_000;

/// What the grammar says an expression may begin with.
const EXPRESSION_STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                                 BYTES, IDENTIFIER}";

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub(crate) fn parse(text: &str, libraries: Libraries) -> Result<Expr, CompileError> {
    if text.len() > MAX_LENGTH {
        return Err(CompileError::at(text, 0, format!("expression is longer than {MAX_LENGTH} bytes")));
    }
    let mut parser =
        Parser { text, tokens: tokens(text)?, at: 0, depth: 0, structures: libraries == Libraries::Mutation };
    let expr = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    /// Whether `Object{…}` is understood.
    structures: bool,
}

type Parsed = Result<Expr, CompileError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn offset(&self) -> usize {
        self.tokens[self.at].1
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), CompileError> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    fn unexpected(&self, wanted: &str) -> CompileError {
        let found = match self.peek() {
            Token::End => "<EOF>".to_owned(),
            _ => {
                let end = self.tokens.get(self.at + 1).map_or(self.text.len(), |(_, offset)| *offset);
                self.text[self.offset()..end].trim().to_owned()
            }
        };
        let message = match wanted {
            "<EOF>" => format!("extraneous input '{found}' expecting <EOF>"),
            "IDENTIFIER" => format!("no viable alternative at input '.{found}'").replace("<EOF>", ""),
            "expression" => format!("mismatched input '{found}' expecting {EXPRESSION_STARTS}"),
            sign => format!("missing '{sign}' at '{found}'"),
        };
        CompileError::at(self.text, self.offset(), format!("Syntax error: {message}"))
    }

    fn error(&self, offset: usize, message: impl std::fmt::Display) -> CompileError {
        CompileError::at(self.text, offset, message)
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        if self.depth >= MAX_DEPTH {
            return Err(
                self.error(self.offset(), format!("expression recursion limit exceeded: {MAX_DEPTH}"))
            );
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn expr(&mut self) -> Parsed {
        self.deeper(|parser| {
            let condition = parser.or()?;
            let offset = parser.offset();
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.or()?;
            parser.expect(":")?;
            let no = parser.expr()?;
            let kind = Kind::Choose { condition: Box::new(condition), yes: Box::new(yes), no: Box::new(no) };
            Ok(Expr { kind, offset })
        })
    }

    fn or(&mut self) -> Parsed {
        let terms = self.series("||", Self::and)?;
        Ok(balanced(terms, |left, right| Kind::Or(Box::new(left), Box::new(right))))
    }

    fn and(&mut self) -> Parsed {
        let terms = self.series("&&", Self::relation)?;
        Ok(balanced(terms, |left, right| Kind::And(Box::new(left), Box::new(right))))
    }

    fn series(
        &mut self,
        sign: &str,
        next: fn(&mut Self) -> Parsed,
    ) -> Result<Vec<(Expr, usize)>, CompileError> {
        let mut terms = vec![(next(self)?, 0)];
        loop {
            let offset = self.offset();
            if !self.take(sign) {
                return Ok(terms);
            }
            terms.push((next(self)?, offset));
        }
    }

    fn relation(&mut self) -> Parsed {
        let mut left = self.sum()?;
        for count in 0.. {
            let offset = self.offset();
            let name = match self.peek() {
                Token::Sign("==") => "_==_",
                Token::Sign("!=") => "_!=_",
                Token::Sign("<") => "_<_",
                Token::Sign("<=") => "_<=_",
                Token::Sign(">") => "_>_",
                Token::Sign(">=") => "_>=_",
                Token::Ident(name) if name == "in" => "@in",
                _ => break,
            };
            self.at += 1;
            let right = self.sum()?;
            left = self.binary(count, name, left, right, offset)?;
        }
        Ok(left)
    }

    /// A chain such as `1 + 1 + 1 …` nests to the left as deep as it is long.
    fn binary(&self, count: usize, name: &str, left: Expr, right: Expr, offset: usize) -> Parsed {
        if count > MAX_DEPTH {
            return Err(self.error(offset, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        Ok(Expr { kind: Kind::Call { name: name.to_owned(), target: None, args: vec![left, right] }, offset })
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        for count in 0.. {
            let offset = self.offset();
            let name = match self.peek() {
                Token::Sign("+") => "_+_",
                Token::Sign("-") => "_-_",
                _ => break,
            };
            self.at += 1;
            let right = self.product()?;
            left = self.binary(count, name, left, right, offset)?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.unary()?;
        for count in 0.. {
            let offset = self.offset();
            let name = match self.peek() {
                Token::Sign("*") => "_*_",
                Token::Sign("/") => "_/_",
                Token::Sign("%") => "_%_",
                _ => break,
            };
            self.at += 1;
            let right = self.unary()?;
            left = self.binary(count, name, left, right, offset)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let offset = self.offset();
        for (sign, name) in [("!", "!_"), ("-", "-_")] {
            if !self.is(sign) {
                continue;
            }
            let mut count = 0;
            while self.take(sign) {
                count += 1;
            }
            // A minus belongs to the number it stands before.
            if sign == "-" && count == 1 {
                let literal = match self.peek() {
                    Token::Int(value) => Some(Literal::Int(-value)),
                    Token::IntMin => Some(Literal::Int(i64::MIN)),
                    Token::Double(value) => Some(Literal::Double(-value)),
                    _ => None,
                };
                if let Some(literal) = literal {
                    self.at += 1;
                    return self.members(Expr { kind: Kind::Literal(literal), offset });
                }
            }
            let operand = self.member()?;
            if count % 2 == 0 {
                return Ok(operand);
            }
            let kind = Kind::Call { name: name.to_owned(), target: None, args: vec![operand] };
            return Ok(Expr { kind, offset });
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut operand: Expr) -> Parsed {
        for count in 0.. {
            let offset = self.offset();
            if count > MAX_DEPTH {
                return Err(self.error(offset, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
            }
            if self.is(".") || self.is(".?") {
                let optional = self.is(".?");
                self.at += 1;
                let field = match self.peek().clone() {
                    Token::Ident(name) => name,
                    Token::Escaped(_) => return Err(self.error(self.offset(), "unsupported syntax: '`'")),
                    _ => return Err(self.unexpected("IDENTIFIER")),
                };
                self.at += 1;
                if !optional && self.is("(") {
                    operand = self.method(operand, field)?;
                } else {
                    operand =
                        Expr { kind: Kind::Select { operand: Box::new(operand), field, optional }, offset };
                }
            } else if self.is("[") || self.is("[?") {
                let optional = self.is("[?");
                self.at += 1;
                let index = self.expr()?;
                self.expect("]")?;
                let kind = Kind::Index { operand: Box::new(operand), index: Box::new(index), optional };
                operand = Expr { kind, offset };
            } else if self.is("{")
                && let Some(name) = qualified_name(&operand)
            {
                if self.structures && is_structure(&name) {
                    self.at += 1;
                    operand = self.structure(offset)?;
                    continue;
                }
                return Err(self.error(offset, format!("undeclared reference to '{name}' (in container '')")));
            } else {
                return Ok(operand);
            }
        }
        Ok(operand)
    }

    fn method(&mut self, target: Expr, name: String) -> Parsed {
        let offset = self.offset();
        let args = self.arguments()?;
        match macro_kind(&name, args.len()) {
            Some(kind) if !is_namespace(&target) => self.macro_call(kind, target, args, offset),
            _ => Ok(Expr { kind: Kind::Call { name, target: Some(Box::new(target)), args }, offset }),
        }
    }

    fn macro_call(&self, kind: MacroKind, range: Expr, mut args: Vec<Expr>, offset: usize) -> Parsed {
        let Some(body) = args.pop() else { return Err(self.error(offset, "macro without arguments")) };
        let variables = match kind {
            MacroKind::Map
            | MacroKind::Filter
            | MacroKind::SortBy
            | MacroKind::OptMap
            | MacroKind::OptFlatMap => 1,
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => args.len(),
            MacroKind::TransformList | MacroKind::TransformMap | MacroKind::TransformMapEntry => 2,
        };
        let filter = (args.len() > variables).then(|| args.pop()).flatten();
        let mut vars = Vec::new();
        for arg in &args {
            match &arg.kind {
                Kind::Ident(name) => vars.push(name.clone()),
                _ => return Err(self.error(arg.offset, "argument must be a simple name")),
            }
        }
        Ok(Expr { kind: Kind::Macro(Box::new(Macro { kind, range, vars, filter, body })), offset })
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, CompileError> {
        self.expect("(")?;
        let mut args = Vec::new();
        if self.take(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.take(")") {
                return Ok(args);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Parsed {
        let offset = self.offset();
        let literal = |literal| Ok(Expr { kind: Kind::Literal(literal), offset });
        let token = self.peek().clone();
        self.at += usize::from(token != Token::End);
        match token {
            Token::Int(value) => literal(Literal::Int(value)),
            Token::Uint(value) => literal(Literal::Uint(value)),
            Token::Double(value) => literal(Literal::Double(value)),
            Token::String(value) => literal(Literal::String(value.into())),
            Token::Bytes(value) => literal(Literal::Bytes(value.into())),
            Token::IntMin => Err(self.error(offset, "Syntax error: invalid int literal")),
            Token::Ident(name) => match name.as_str() {
                "true" => literal(Literal::Bool(true)),
                "false" => literal(Literal::Bool(false)),
                "null" => literal(Literal::Null),
                reserved if RESERVED.contains(&reserved) => {
                    Err(self.error(offset, format!("reserved identifier: {reserved}")))
                }
                _ => self.name(name, offset),
            },
            Token::Sign(".") => match self.peek().clone() {
                Token::Ident(name) => {
                    self.at += 1;
                    self.name(name, offset)
                }
                _ => Err(self.unexpected("IDENTIFIER")),
            },
            Token::Sign("(") => {
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Sign("[") => self.list(offset, false),
            Token::Sign("[?") => self.list(offset, true),
            Token::Sign("{") => self.map(offset),
            Token::Sign(_) | Token::Escaped(_) | Token::End => {
                self.at -= usize::from(self.at > 0 && *self.peek() != Token::End || token != Token::End);
                Err(self.unexpected("expression"))
            }
        }
    }

    fn name(&mut self, name: String, offset: usize) -> Parsed {
        if !self.is("(") {
            return Ok(Expr { kind: Kind::Ident(name), offset });
        }
        let offset = self.offset();
        let mut args = self.arguments()?;
        if name == "has" && args.len() == 1 {
            let Some(arg) = args.pop() else {
                return Err(self.error(offset, "invalid argument to has() macro"));
            };
            return match arg.kind {
                Kind::Select { operand, field, .. } => {
                    Ok(Expr { kind: Kind::Has { operand, field }, offset })
                }
                _ => Err(self.error(arg.offset, "invalid argument to has() macro")),
            };
        }
        Ok(Expr { kind: Kind::Call { name, target: None, args }, offset })
    }

    fn list(&mut self, offset: usize, first_is_optional: bool) -> Parsed {
        let mut items = Vec::new();
        while first_is_optional && items.is_empty() || !self.take("]") {
            let optional = self.take("?") || first_is_optional && items.is_empty();
            items.push((self.expr()?, optional));
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Expr { kind: Kind::List(items), offset })
    }

    /// Fields between braces; the result is a map with their names as keys.
    fn structure(&mut self, offset: usize) -> Parsed {
        let mut entries = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let at = self.offset();
            let name = match self.peek().clone() {
                Token::Ident(name) | Token::Escaped(name) => name,
                _ => return Err(self.unexpected("IDENTIFIER")),
            };
            self.at += 1;
            self.expect(":")?;
            let key = Expr { kind: Kind::Literal(Literal::String(name.into())), offset: at };
            entries.push((key, self.expr()?, optional));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr { kind: Kind::Map(entries), offset })
    }

    fn map(&mut self, offset: usize) -> Parsed {
        let mut entries = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push((key, self.expr()?, optional));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr { kind: Kind::Map(entries), offset })
    }
}

/// What a mutating admission policy makes: the object's own shape, or an operation on it.
fn is_structure(name: &str) -> bool {
    name == "Object" || name == "JSONPatch" || name.starts_with("Object.")
}

/// A tree of few levels, so that a hundred `&&` in a row are not a hundred levels.
fn balanced(mut terms: Vec<(Expr, usize)>, join: fn(Expr, Expr) -> Kind) -> Expr {
    let joined = |mut terms: Vec<(Expr, usize)>| -> Vec<(Expr, usize)> {
        let mut out = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.drain(..);
        while let Some((left, at)) = rest.next() {
            match rest.next() {
                Some((right, offset)) => out.push((Expr { kind: join(left, right), offset }, at)),
                None => out.push((left, at)),
            }
        }
        out
    };
    while terms.len() > 1 {
        terms = joined(terms);
    }
    terms.pop().map_or(Expr { kind: Kind::Literal(Literal::Null), offset: 0 }, |(expr, _)| expr)
}

fn macro_kind(name: &str, args: usize) -> Option<MacroKind> {
    match (name, args) {
        ("all", 2 | 3) => Some(MacroKind::All),
        ("exists", 2 | 3) => Some(MacroKind::Exists),
        ("exists_one", 2) | ("existsOne", 2 | 3) => Some(MacroKind::ExistsOne),
        ("filter", 2) => Some(MacroKind::Filter),
        ("map", 2 | 3) => Some(MacroKind::Map),
        ("transformList", 3 | 4) => Some(MacroKind::TransformList),
        ("transformMap", 3 | 4) => Some(MacroKind::TransformMap),
        ("transformMapEntry", 3 | 4) => Some(MacroKind::TransformMapEntry),
        ("sortBy", 2) => Some(MacroKind::SortBy),
        ("optMap", 2) => Some(MacroKind::OptMap),
        ("optFlatMap", 2) => Some(MacroKind::OptFlatMap),
        _ => None,
    }
}

/// `cel.bind(x, 1, x)` would look like a macro on a variable called `cel`.
fn is_namespace(target: &Expr) -> bool {
    matches!(&target.kind, Kind::Ident(name) if name == "cel")
}
