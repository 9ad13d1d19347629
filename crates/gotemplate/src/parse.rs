//! From tokens to trees.
//!
//! Errors name the line of the token read last, even if it is not the one complained about: that is what Go does, and
//! what users of Helm search for.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Error;
use crate::exec::Builtin;
use crate::function::Functions;
use crate::lex::{Keywords, Kind, Lexer, Token};
use crate::node::{
    Branch, Command, Declared, Excerpt, FunctionRef, Node, Number, Operand, Pipe, Pos, Symbol, Tree,
};
use crate::number::number;
use crate::strconv;
use crate::value::Str;

/// Parentheses within parentheses, and controls within controls. Go allows ten times as many of the former.
const MAX_DEPTH: usize = 1_000;
/// Positions are 32 bits.
const MAX_TEXT: usize = 1 << 30;

/// Parses a text into the template `name` and everything it defines, in the order of their ends.
pub fn parse(name: &str, text: &str, functions: &Functions) -> Result<Vec<Tree>, Error> {
    if text.len() > MAX_TEXT {
        return Err(Error::parse(
            name,
            format!("template: {name}:1: template is larger than {MAX_TEXT} bytes"),
        ));
    }
    let keywords = Keywords {
        with_break: functions.find("break").is_none(),
        with_continue: functions.find("continue").is_none(),
    };
    let mut parser = Parser {
        name,
        parse_name: Arc::from(name),
        text: Arc::from(text),
        lexer: Lexer::new(text, keywords),
        functions,
        frame: Frame::new(),
        symbols: HashMap::from([("$", 0)]),
        words: Words::new(),
        nodes: Vec::new(),
        commands: Vec::new(),
        operands: Vec::new(),
        trees: Vec::new(),
        depth: 0,
    };
    parser.parse().map_err(|text| Error::parse(name, *text))?;
    Ok(parser.trees)
}

struct Parser<'t> {
    name: &'t str,
    parse_name: Arc<str>,
    text: Arc<str>,
    lexer: Lexer<'t>,
    functions: &'t Functions,
    frame: Frame<'t>,
    symbols: HashMap<&'t str, Symbol>,
    words: Words,
    // What is being put together, of all levels; finished lists are then as long as they have to be.
    nodes: Vec<Node>,
    commands: Vec<Command>,
    operands: Vec<Operand>,
    trees: Vec<Tree>,
    depth: usize,
}

/// Names that were seen a moment ago: templates say `.Values` again and again. Whatever stands at a name's place is replaced, so
/// that no choice of names makes it slow.
struct Words(Vec<Option<Str>>);

impl Words {
    const SIZE: usize = 128;

    fn new() -> Self {
        Self(vec![None; Self::SIZE])
    }

    fn get(&mut self, word: &str) -> Str {
        let hash =
            word.bytes().fold(word.len(), |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let place = &mut self.0[hash % Self::SIZE];
        match place {
            Some(known) if *known == *word => known.clone(),
            _ => place.insert(Str::from(word)).clone(),
        }
    }
}

/// What belongs to one template of the text.
struct Frame<'t> {
    /// Up to three tokens of look-ahead; the first is the one read last.
    tokens: [Token<'t>; 3],
    peeked: usize,
    variables: Vec<&'t str>,
    action_line: u32,
    ranges: usize,
}

impl Frame<'_> {
    fn new() -> Self {
        let nothing = Token { kind: Kind::Eof, at: 0, text: "", line: 0 };
        Self { tokens: [nothing; 3], peeked: 0, variables: vec!["$"], action_line: 0, ranges: 0 }
    }
}

/// What ends a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terminator {
    End,
    Else,
}

impl Terminator {
    fn show(self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

enum Item {
    Node(Node),
    Terminator(Terminator),
}

/// The whole error text; boxed, since results pass through every level of the recursion.
type Parsed<T> = Result<T, Box<String>>;

impl<'t> Parser<'t> {
    fn next(&mut self) -> Token<'t> {
        if self.frame.peeked > 0 {
            self.frame.peeked -= 1;
        } else {
            self.frame.tokens[0] = self.lexer.next_token();
        }
        self.frame.tokens[self.frame.peeked]
    }

    fn backup(&mut self) {
        self.frame.peeked += 1;
    }

    fn backup2(&mut self, first: Token<'t>) {
        self.frame.tokens[1] = first;
        self.frame.peeked = 2;
    }

    fn backup3(&mut self, first: Token<'t>, second: Token<'t>) {
        self.frame.tokens[1] = second;
        self.frame.tokens[2] = first;
        self.frame.peeked = 3;
    }

    fn peek(&mut self) -> Token<'t> {
        if self.frame.peeked == 0 {
            self.frame.peeked = 1;
            self.frame.tokens[0] = self.lexer.next_token();
        }
        self.frame.tokens[self.frame.peeked - 1]
    }

    fn next_non_space(&mut self) -> Token<'t> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Token<'t> {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn error<T>(&self, message: &str) -> Parsed<T> {
        let line = self.frame.tokens[0].line;
        Err(Box::new(format!("template: {}:{line}: {message}", self.name)))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Parsed<Token<'t>> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    fn unexpected<T>(&self, token: &Token<'t>, context: &str) -> Parsed<T> {
        if token.kind != Kind::Error {
            return self.error(&format!("unexpected {} in {context}", token.describe()));
        }
        let mut extra = String::new();
        if self.frame.action_line != 0 && self.frame.action_line != token.line {
            // Not "unclosed action in action".
            let relation = if self.lexer.failure().ends_with(" action") { "" } else { " in action" };
            extra = format!("{relation} started at {}:{}", self.name, self.frame.action_line);
        }
        self.error(&format!("{}{extra}", self.lexer.failure()))
    }

    /// Goes one level deeper, on a new piece of stack if this one is nearly used up.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return self.error("max expression depth exceeded");
        }
        self.depth += 1;
        let result = crate::stack::grow(|| work(self));
        self.depth -= 1;
        result
    }

    fn parse(&mut self) -> Parsed<()> {
        while self.peek().kind != Kind::Eof {
            if self.peek().kind == Kind::LeftDelim {
                let delim = self.next();
                if self.next_non_space().kind == Kind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup2(delim);
            }
            match self.text_or_action()? {
                Item::Node(node) => self.nodes.push(node),
                Item::Terminator(end) => return self.error(&format!("unexpected {}", end.show())),
            }
        }
        let root = std::mem::take(&mut self.nodes);
        self.add(self.name, root)
    }

    fn definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::replace(&mut self.frame, Frame::new());
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        let (root, end) = self.deeper(Self::item_list)?;
        if end != Terminator::End {
            return self.error(&format!("unexpected {} in {CONTEXT}", end.show()));
        }
        self.add(&name, root)?;
        self.frame = outer;
        Ok(())
    }

    /// Keeps a finished template, unless the name has one that is not empty.
    fn add(&mut self, name: &str, root: Vec<Node>) -> Parsed<()> {
        let tree = Tree {
            name: Arc::from(name),
            parse_name: self.parse_name.clone(),
            text: self.text.clone(),
            root,
        };
        match self.trees.iter().position(|known| &*known.name == name) {
            None => self.trees.push(tree),
            Some(at) if self.trees[at].is_empty() => self.trees[at] = tree,
            Some(_) if tree.is_empty() => {}
            Some(_) => {
                let name = strconv::quote(name.as_bytes());
                return self.error(&format!("template: multiple definition of template {name}"));
            }
        }
        Ok(())
    }

    fn item_list(&mut self) -> Parsed<(Vec<Node>, Terminator)> {
        let start = self.nodes.len();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => self.nodes.push(node),
                Item::Terminator(end) => return Ok((self.nodes.drain(start..).collect(), end)),
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text(self.excerpt(&token)))),
            Kind::LeftDelim => {
                self.frame.action_line = token.line;
                let item = self.action()?;
                self.frame.action_line = 0;
                Ok(item)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            Kind::Block => self.block()?,
            Kind::Break => self.jump(&token, "break")?,
            Kind::Continue => self.jump(&token, "continue")?,
            Kind::Else => return self.otherwise(),
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::Terminator(Terminator::End));
            }
            Kind::If => Node::If(self.control("if")?),
            Kind::Range => Node::Range(self.control("range")?),
            Kind::Template => self.template()?,
            Kind::With => Node::With(self.control("with")?),
            _ => {
                self.backup();
                let pos = self.peek().at;
                Node::Action { pos, pipe: self.pipeline("command", Kind::RightDelim)? }
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, token: &Token<'t>, word: &str) -> Parsed<Node> {
        let next = self.next_non_space();
        if next.kind != Kind::RightDelim {
            return self.unexpected(&next, &format!("{{{{{word}}}}}"));
        }
        if self.frame.ranges == 0 {
            return self.error(&format!("{{{{{word}}}}} outside {{{{range}}}}"));
        }
        let pos = token.at;
        Ok(if token.kind == Kind::Break { Node::Break { pos } } else { Node::Continue { pos } })
    }

    fn otherwise(&mut self) -> Parsed<Item> {
        // `else if` and `else with`: the keyword stays, for the control to find.
        if !matches!(self.peek_non_space().kind, Kind::If | Kind::With) {
            self.expect(Kind::RightDelim, "else")?;
        }
        Ok(Item::Terminator(Terminator::Else))
    }

    fn control(&mut self, context: &str) -> Parsed<Branch> {
        let variables = self.frame.variables.len();
        let branch = self.deeper(|parser| parser.branch(context))?;
        self.frame.variables.truncate(variables);
        Ok(branch)
    }

    fn branch(&mut self, context: &str) -> Parsed<Branch> {
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        let is_range = context == "range";
        self.frame.ranges += usize::from(is_range);
        let (list, end) = self.item_list()?;
        self.frame.ranges -= usize::from(is_range);
        let otherwise = match end {
            Terminator::End => None,
            Terminator::Else => Some(self.else_list(context)?),
        };
        Ok(Branch { pipe, list, otherwise })
    }

    fn else_list(&mut self, context: &str) -> Parsed<Vec<Node>> {
        let next = self.peek().kind;
        if context == "if" && next == Kind::If {
            self.next();
            return Ok(vec![Node::If(self.control("if")?)]);
        }
        if context == "with" && next == Kind::With {
            self.next();
            return Ok(vec![Node::With(self.control("with")?)]);
        }
        let (list, end) = self.item_list()?;
        if end != Terminator::End {
            return self.error(&format!("expected end; found {}", end.show()));
        }
        Ok(list)
    }

    fn block(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::replace(&mut self.frame, Frame::new());
        let (root, end) = self.deeper(Self::item_list)?;
        if end != Terminator::End {
            self.frame = outer;
            return self.error(&format!("unexpected {} in {CONTEXT}", end.show()));
        }
        self.add(&name, root)?;
        self.frame = outer;
        Ok(Node::Template { pos: token.at, name: Arc::from(&*name), pipe: Some(pipe) })
    }

    fn template(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Node::Template { pos: token.at, name: Arc::from(&*name), pipe })
    }

    fn template_name(&mut self, token: &Token<'t>, context: &str) -> Parsed<String> {
        match token.kind {
            Kind::String | Kind::RawString => {
                let name = self.unquote(token)?;
                Ok(String::from_utf8_lossy(&name).into_owned())
            }
            _ => self.unexpected(token, context),
        }
    }

    fn excerpt(&self, token: &Token<'t>) -> Excerpt {
        Excerpt { of: self.text.clone(), start: token.at, end: token.at + token.text.len() as Pos }
    }

    /// A string constant; most have nothing to unescape.
    fn string(&self, token: &Token<'t>) -> Parsed<Str> {
        let escape = if token.kind == Kind::RawString { '\r' } else { '\\' };
        if token.text.contains(escape) {
            return self.unquote(token).map(Str::from_bytes);
        }
        Ok(Str::from(&token.text[1..token.text.len() - 1]))
    }

    fn unquote(&self, token: &Token<'t>) -> Parsed<Vec<u8>> {
        match strconv::unquote(token.text.as_bytes()) {
            Some(text) => Ok(text),
            None => self.error("invalid syntax"),
        }
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Parsed<Pipe> {
        let pos = self.peek_non_space().at;
        let start = self.commands.len();
        let mut pipe = Pipe { pos, assign: false, declares: Vec::new(), commands: Vec::new() };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    self.commands.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
        pipe.commands = self.commands.drain(start..).collect();
        self.check_pipeline(&pipe, context)?;
        Ok(pipe)
    }

    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Parsed<()> {
        loop {
            let variable = self.peek_non_space();
            if variable.kind != Kind::Variable {
                return Ok(());
            }
            self.next();
            // Whether a space follows has to be remembered, in case the variable turns out to be an argument.
            let after = self.peek();
            let next = self.peek_non_space();
            match next.kind {
                Kind::Assign | Kind::Declare => {
                    pipe.assign = next.kind == Kind::Assign;
                    self.next_non_space();
                    self.declare(pipe, variable.text);
                    return Ok(());
                }
                Kind::Char if next.text == "," => {
                    self.next_non_space();
                    self.declare(pipe, variable.text);
                    if context != "range" || pipe.declares.len() >= 2 {
                        return self.error(&format!("too many declarations in {context}"));
                    }
                    if !matches!(
                        self.peek_non_space().kind,
                        Kind::Variable | Kind::RightDelim | Kind::RightParen
                    ) {
                        return self.error("range can only initialize variables");
                    }
                }
                _ if after.kind == Kind::Space => {
                    self.backup3(variable, after);
                    return Ok(());
                }
                _ => {
                    self.backup2(variable);
                    return Ok(());
                }
            }
        }
    }

    fn declare(&mut self, pipe: &mut Pipe, name: &'t str) {
        let symbol = self.symbol(name);
        pipe.declares.push(Declared { symbol, name: self.words.get(name) });
        self.frame.variables.push(name);
    }

    fn symbol(&mut self, name: &'t str) -> Symbol {
        let next = self.symbols.len() as Symbol;
        *self.symbols.entry(name).or_insert(next)
    }

    fn check_pipeline(&mut self, pipe: &Pipe, context: &str) -> Parsed<()> {
        if pipe.commands.is_empty() {
            return self.error(&format!("missing value for {context}"));
        }
        for (at, command) in pipe.commands.iter().enumerate().skip(1) {
            let literal = matches!(
                command.args[0],
                Operand::Bool { .. }
                    | Operand::Dot { .. }
                    | Operand::Nil { .. }
                    | Operand::Number { .. }
                    | Operand::String { .. }
            );
            if literal {
                return self.error(&format!("non executable command in pipeline stage {}", at + 1));
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<Command> {
        let pos = self.peek_non_space().at;
        let start = self.operands.len();
        loop {
            self.peek_non_space();
            if let Some(operand) = self.operand()? {
                self.operands.push(operand);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.backup(),
                Kind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if self.operands.len() == start {
            return self.error("empty command");
        }
        Ok(Command { pos, args: self.operands.drain(start..).collect() })
    }

    fn operand(&mut self) -> Parsed<Option<Operand>> {
        let Some(mut node) = self.term()? else { return Ok(None) };
        if self.peek().kind != Kind::Field {
            return Ok(Some(node));
        }
        let chain_pos = self.peek().at;
        let mut more = Vec::new();
        while self.peek().kind == Kind::Field {
            let name = self.next().text;
            more.push(self.words.get(&name[1..]));
        }
        node = match node {
            Operand::Field { mut fields, .. } => {
                fields.append(&mut more);
                Operand::Field { pos: chain_pos, fields }
            }
            Operand::Variable { symbol, name, mut fields, .. } => {
                fields.append(&mut more);
                Operand::Variable { pos: chain_pos, symbol, name, fields }
            }
            literal @ (Operand::Bool { .. }
            | Operand::String { .. }
            | Operand::Number { .. }
            | Operand::Nil { .. }
            | Operand::Dot { .. }) => {
                let shown = strconv::quote(literal.to_string().as_bytes());
                return self.error(&format!("unexpected . after term {shown}"));
            }
            node => Operand::Chain { pos: chain_pos, node: Box::new(node), fields: more },
        };
        Ok(Some(node))
    }

    fn term(&mut self) -> Parsed<Option<Operand>> {
        let token = self.next_non_space();
        let pos = token.at;
        Ok(Some(match token.kind {
            Kind::Identifier => self.function(&token)?,
            Kind::Dot => Operand::Dot { pos },
            Kind::Nil => Operand::Nil { pos },
            Kind::Variable => self.variable(&token)?,
            Kind::Field => Operand::Field { pos, fields: vec![self.words.get(&token.text[1..])] },
            Kind::Bool => Operand::Bool { pos, value: token.text == "true" },
            Kind::CharConstant | Kind::Complex | Kind::Number => {
                Operand::Number { pos, number: self.number(&token)? }
            }
            Kind::LeftParen => {
                let pipe =
                    self.deeper(|parser| parser.pipeline("parenthesized pipeline", Kind::RightParen))?;
                Operand::Pipe(Box::new(pipe))
            }
            Kind::String | Kind::RawString => {
                Operand::String { pos, quoted: self.excerpt(&token), text: self.string(&token)? }
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        }))
    }

    fn function(&mut self, token: &Token<'t>) -> Parsed<Operand> {
        let (name, function) = match self.functions.find(token.text) {
            Some(at) => (self.functions.at(at).name, FunctionRef::Table(at)),
            None => match Builtin::find(token.text) {
                Some(builtin) => (builtin.name(), FunctionRef::Builtin(builtin)),
                None => {
                    let name = strconv::quote(token.text.as_bytes());
                    return self.error(&format!("function {name} not defined"));
                }
            },
        };
        Ok(Operand::Function { pos: token.at, name, function })
    }

    fn variable(&mut self, token: &Token<'t>) -> Parsed<Operand> {
        if !self.frame.variables.contains(&token.text) {
            let name = strconv::quote(token.text.as_bytes());
            return self.error(&format!("undefined variable {name}"));
        }
        let symbol = self.symbol(token.text);
        let name = self.words.get(token.text);
        Ok(Operand::Variable { pos: token.at, symbol, name, fields: Vec::new() })
    }

    fn number(&mut self, token: &Token<'t>) -> Parsed<Box<Number>> {
        match number(token.text, token.kind) {
            Ok(number) => Ok(Box::new(number)),
            Err(message) => self.error(&message),
        }
    }
}
