//! Label selectors: `app=web,tier in (a, b),!canary`, read as Kubernetes reads them.

use std::collections::BTreeSet;

use crate::go_text::quote;

/// What a selector asks of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// A parsed selector; the empty one accepts everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: scan(text), at: 0 }.parse().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a set of labels, asked by key, fulfils every requirement.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match (self.operator, value) {
            (Operator::In, Some(value)) => self.values.contains(value),
            (Operator::NotIn, Some(value)) => !self.values.contains(value),
            (Operator::In | Operator::GreaterThan | Operator::LessThan, None) => false,
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Exists, None) | (Operator::DoesNotExist, Some(_)) => false,
            (Operator::GreaterThan, Some(value)) => self.limit() < number(value),
            (Operator::LessThan, Some(value)) => {
                number(value).is_some_and(|value| Some(value) < self.limit())
            }
        }
    }

    fn limit(&self) -> Option<i64> {
        self.values.first().and_then(|text| text.parse().ok())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Open,
    Word,
    Bad,
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(space);
    while let Some(first) = rest.chars().next() {
        let length = if special(first) {
            if rest.starts_with("==") || rest.starts_with("!=") { 2 } else { 1 }
        } else {
            rest.find(|c| special(c) || space(c)).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        let token = match word {
            ")" => Token::Close,
            "," => Token::Comma,
            "!" => Token::Not,
            "=" | "==" => Token::Equals,
            "!=" => Token::NotEquals,
            ">" => Token::Greater,
            "<" => Token::Less,
            "in" => Token::In,
            "notin" => Token::NotIn,
            "(" => Token::Open,
            "\0" => Token::Bad,
            _ => Token::Word,
        };
        tokens.push((token, word.to_owned()));
        rest = after.trim_start_matches(space);
    }
    tokens.push((Token::End, String::new()));
    tokens
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    /// The next token where a key or a value may stand: there, `in` is only a word.
    fn peek(&self) -> (Token, &str) {
        let (token, text) = self.tokens.get(self.at).map_or((&Token::End, ""), |(token, text)| (token, text));
        let token = if matches!(token, Token::In | Token::NotIn) { Token::Word } else { token.clone() };
        (token, text)
    }

    fn next(&mut self) -> (Token, String) {
        let (token, text) = self.peek();
        let found = (token, text.to_owned());
        self.at += 1;
        found
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Word | Token::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.next() {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => {
                            let (token, text) = self.peek();
                            if !matches!(token, Token::Word | Token::Not) {
                                return Err(format!("found '{text}', expected: identifier after ','"));
                            }
                        }
                        (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, text) => {
                    return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Word {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check_key(&key)?;
        if matches!(self.peek().0, Token::End | Token::Comma) || negated {
            // After `!key` kustomize looks no further; what follows is refused by the caller.
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: BTreeSet::new() });
        }
        let (token, text) = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        self.at += 1;
        let (operator, values) = match token {
            Token::In => (Operator::In, self.values()?),
            Token::NotIn => (Operator::NotIn, self.values()?),
            Token::Equals => (Operator::In, self.exact_value()?),
            Token::NotEquals => (Operator::NotIn, self.exact_value()?),
            Token::Greater => (Operator::GreaterThan, self.number()?),
            Token::Less => (Operator::LessThan, self.number()?),
            Token::End
            | Token::Close
            | Token::Comma
            | Token::Not
            | Token::Open
            | Token::Word
            | Token::Bad => {
                return Err(format!("found '{text}', expected: '=', '!=', '==', 'in', notin'"));
            }
        };
        for value in &values {
            check_value(&key, value)?;
        }
        Ok(Requirement { key, operator, values })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, text) = self.next();
        if token != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let (token, first) = self.peek();
        let first = first.to_owned();
        match token {
            Token::Word | Token::Comma => {
                let values = self.list()?;
                if self.next().0 != Token::Close {
                    return Err(format!("found '{first}', expected: ')'"));
                }
                Ok(values)
            }
            Token::Close => {
                self.next();
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{first}', expected: ',', ')' or identifier")),
        }
    }

    fn list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Token::Word, text) => {
                    values.insert(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.next();
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            (Token::Word, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn number(&mut self) -> Result<BTreeSet<String>, String> {
        let values = self.exact_value()?;
        if values.iter().any(|value| value.parse::<i64>().is_err()) {
            return Err("for 'Gt', 'Lt' operators, the value must be an integer".to_owned());
        }
        Ok(values)
    }
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends(text.as_bytes().first()) && ends(text.as_bytes().last()) && text.bytes().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().is_some_and(lower)
                && bytes.last().is_some_and(lower)
                && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
        })
}

fn check_key(key: &str) -> Result<(), String> {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const PREFIX: &str = "prefix part a DNS-1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if !is_subdomain(prefix) {
                problems.push(PREFIX.to_owned());
            }
            name
        }
        _ => {
            let problem = format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            );
            return Err(format!("invalid label key {}: {problem}", quote(key)));
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("invalid label key {}: {}", quote(key), problems.join("; ")))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(VALUE);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("invalid label value: {}: at key: {}: {}", quote(value), quote(key), problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    #[test]
    fn requirements_are_joined_by_and() {
        assert!(accepts("app=web,tier in (a, b),!canary", &[("app", "web"), ("tier", "b")]));
        assert!(!accepts("app=web,tier in (a, b),!canary", &[("app", "web"), ("tier", "c")]));
        assert!(!accepts("app=web,!canary", &[("app", "web"), ("canary", "")]));
        assert!(accepts("app!=web", &[]));
        assert!(accepts("count>3", &[("count", "4")]));
        assert!(accepts("", &[]));
    }

    #[test]
    fn mistakes_are_reported() {
        assert!(LabelSelector::parse("a=b c").is_err());
        assert!(LabelSelector::parse("-a=b").is_err());
        assert!(LabelSelector::parse("a in b").is_err());
    }
}
