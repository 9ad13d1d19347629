//! Text into literal parts and substitutions.
//!
//! The rules are those of Flux's parser, which reads an operator's characters greedily and knows two escapes:
//! `$$` everywhere, and a backslash before a slash or backslash inside of a replacement.

use super::Error;
use super::operator::Operator;

pub(super) const DEEPEST: usize = 200;

pub(super) enum Node {
    Text(String),
    Variable { name: String, operator: Operator, arguments: Vec<Node> },
}

pub(super) fn parse(text: &str) -> Result<Vec<Node>, Error> {
    let mut parser = Parser { text: text.chars().collect(), at: 0, depth: 0 };
    let mut nodes = Vec::new();
    let mut literal = String::new();
    while let Some(character) = parser.peek() {
        if parser.opens() {
            if !literal.is_empty() {
                nodes.push(Node::Text(std::mem::take(&mut literal)));
            }
            parser.at += 2;
            nodes.push(parser.substitution()?);
            continue;
        }
        parser.at += 1;
        // Of two dollars one stays, and it opens nothing.
        if character == '$' && parser.peek() == Some('$') {
            parser.at += 1;
        }
        literal.push(character);
    }
    if !literal.is_empty() {
        nodes.push(Node::Text(literal));
    }
    Ok(nodes)
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn peek_after(&self, distance: usize) -> Option<char> {
        self.text.get(self.at + distance).copied()
    }

    fn opens(&self) -> bool {
        self.peek() == Some('$') && self.peek_after(1) == Some('{')
    }

    fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&accepts) {
            self.at += 1;
        }
        self.text[from..self.at].iter().collect()
    }

    /// Everything between `${` and `}`, the closing brace included.
    fn substitution(&mut self) -> Result<Node, Error> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Error::TooDeep);
        }
        let node = self.inside()?;
        self.depth -= 1;
        Ok(node)
    }

    fn inside(&mut self) -> Result<Node, Error> {
        if self.peek() == Some('#') {
            self.at += 1;
            let name = self.name().ok_or(Error::BadSubstitution)?;
            self.close(Error::BadSubstitution)?;
            return Ok(Node::Variable { name, operator: Operator::Length, arguments: Vec::new() });
        }
        let name = self.name().ok_or(Error::VariableName)?;
        let (operator, arguments) = match self.peek() {
            Some(':') if matches!(self.peek_after(1), Some('=' | '-' | '?' | '+')) => {
                self.at += 2;
                (Operator::Default, self.default_arguments()?)
            }
            Some(':') => {
                self.at += 1;
                (Operator::Substring, self.substring_arguments()?)
            }
            Some('=') => {
                self.at += 1;
                (Operator::Default, self.default_arguments()?)
            }
            Some(',' | '^') => (self.casing()?, Vec::new()),
            Some('/') => {
                self.at += 1;
                self.replacement()?
            }
            Some(mark @ ('#' | '%')) => self.trimming(mark)?,
            _ => {
                self.close(Error::MissingClosingBrace)?;
                (Operator::Plain, Vec::new())
            }
        };
        Ok(Node::Variable { name, operator, arguments })
    }

    fn name(&mut self) -> Option<String> {
        let name = self.take_while(|c| c == '_' || c.is_alphanumeric());
        (!name.is_empty()).then_some(name)
    }

    fn close(&mut self, otherwise: Error) -> Result<(), Error> {
        if self.peek() != Some('}') {
            return Err(otherwise);
        }
        self.at += 1;
        Ok(())
    }

    /// One argument: a nested substitution, or text up to what `accepts` refuses or a nested one begins.
    fn argument(&mut self, escapes: bool, accepts: impl Fn(char) -> bool) -> Result<Node, Error> {
        if self.opens() {
            self.at += 2;
            return self.substitution();
        }
        let mut text = String::new();
        while let Some(character) = self.peek() {
            if self.opens() {
                break;
            }
            let escaped = escapes
                && match character {
                    '$' => self.peek_after(1) == Some('$'),
                    '\\' => matches!(self.peek_after(1), Some('/' | '\\')),
                    _ => false,
                };
            if escaped {
                text.extend(self.peek_after(1));
                self.at += 2;
                continue;
            }
            if !accepts(character) {
                break;
            }
            text.push(character);
            self.at += 1;
        }
        if text.is_empty() { Err(Error::WithinFunction) } else { Ok(Node::Text(text)) }
    }

    fn default_arguments(&mut self) -> Result<Vec<Node>, Error> {
        let mut arguments = Vec::new();
        while self.peek() != Some('}') {
            arguments.push(self.argument(false, |c| c != '}')?);
        }
        self.close(Error::BadSubstitution)?;
        Ok(arguments)
    }

    fn substring_arguments(&mut self) -> Result<Vec<Node>, Error> {
        let mut arguments = vec![self.argument(false, |c| c != ':' && c != '}')?];
        if self.peek() == Some('}') {
            self.at += 1;
            return Ok(arguments);
        }
        // Any number of colons may stand between the two.
        if self.take_while(|c| c == ':').is_empty() {
            return Err(Error::BadSubstitution);
        }
        arguments.push(self.argument(false, |c| c != '}')?);
        self.close(Error::BadSubstitution)?;
        Ok(arguments)
    }

    fn casing(&mut self) -> Result<Operator, Error> {
        let from = self.at;
        while self.at - from < 2 && matches!(self.peek(), Some(',' | '^')) {
            self.at += 1;
        }
        let mark: String = self.text[from..self.at].iter().collect();
        self.close(Error::BadSubstitution)?;
        Ok(match mark.as_str() {
            "," => Operator::LowerFirst,
            ",," => Operator::Lower,
            "^" => Operator::UpperFirst,
            "^^" => Operator::Upper,
            // A mixture such as `,^` is read and then means a default without text.
            _ => Operator::Default,
        })
    }

    fn replacement(&mut self) -> Result<(Operator, Vec<Node>), Error> {
        let operator = match self.peek() {
            Some('/') => Operator::ReplaceAll,
            Some('#') => Operator::ReplacePrefix,
            Some('%') => Operator::ReplaceSuffix,
            _ => Operator::ReplaceFirst,
        };
        if operator != Operator::ReplaceFirst {
            self.at += 1;
        }
        let mut arguments = vec![self.argument(true, |c| c != '/')?];
        if self.take_while(|c| c == '/').is_empty() {
            return Err(Error::BadSubstitution);
        }
        if self.peek() != Some('}') {
            arguments.push(self.argument(true, |c| c != '}')?);
        }
        self.close(Error::BadSubstitution)?;
        Ok((operator, arguments))
    }

    fn trimming(&mut self, mark: char) -> Result<(Operator, Vec<Node>), Error> {
        self.at += 1;
        let longest = self.peek() == Some(mark);
        if longest {
            self.at += 1;
        }
        let operator = match (mark, longest) {
            ('#', false) => Operator::TrimShortestPrefix,
            ('#', true) => Operator::TrimLongestPrefix,
            (_, false) => Operator::TrimShortestSuffix,
            (_, true) => Operator::TrimLongestSuffix,
        };
        let arguments = vec![self.argument(false, |c| c != '}')?];
        self.close(Error::BadSubstitution)?;
        Ok((operator, arguments))
    }
}
