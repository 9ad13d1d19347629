//! Label and field selectors: the query language of `kubectl -l` and `--field-selector`.
//!
//! Parses and matches; which fields a kind offers is the strategy's business.

use crate::status::Status;

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<LabelSelector, Status> {
        let mut parser = Parser { tokens: lex(text), at: 0 };
        let mut requirements = Vec::new();
        if parser.peek() == &Token::End {
            return Ok(LabelSelector(requirements));
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                Token::End => break,
                Token::Comma => {
                    if !matches!(parser.peek(), Token::Word(_) | Token::Not) {
                        return Err(bad(&format!(
                            "found '{}', expected: identifier after ','",
                            parser.peek().text()
                        )));
                    }
                }
                other => {
                    return Err(bad(&format!("found '{}', expected: ',' or 'end of string'", other.text())));
                }
            }
        }
        Ok(LabelSelector(requirements))
    }

    /// A selector object as workloads carry it (`matchLabels`, `matchExpressions`).
    pub fn from_object(selector: &serde_json::Value) -> LabelSelector {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), test: Test::In(vec![value]) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = || {
                let values = expression["values"].as_array();
                values.into_iter().flatten().filter_map(|v| v.as_str()).map(str::to_owned).collect()
            };
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "DoesNotExist" => Test::Missing,
                _ => Test::Exists,
            };
            requirements
                .push(Requirement { key: expression["key"].as_str().unwrap_or_default().into(), test });
        }
        LabelSelector(requirements)
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.test.holds(get(&requirement.key)))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Test::Exists, value) => value.is_some(),
            (Test::Missing, value) => value.is_none(),
            (Test::In(_) | Test::Greater(_) | Test::Less(_), None) => false,
            (Test::In(values), Some(value)) => values.iter().any(|v| v == value),
            (Test::NotIn(_), None) => true,
            (Test::NotIn(values), Some(value)) => values.iter().all(|v| v != value),
            (Test::Greater(limit), Some(value)) => value.parse::<i64>().is_ok_and(|value| value > *limit),
            (Test::Less(limit), Some(value)) => value.parse::<i64>().is_ok_and(|value| value < *limit),
        }
    }
}

fn bad(detail: &str) -> Status {
    Status::bad_request(format!("unable to parse requirement: {detail}"))
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Equal(&'static str),
    NotEqual,
    Not,
    Open,
    Close,
    Comma,
    Greater,
    Less,
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Equal(sign) => sign,
            Token::NotEqual => "!=",
            Token::Not => "!",
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Greater => ">",
            Token::Less => "<",
            Token::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        let token = match c {
            ' ' | '\t' | '\r' | '\n' => {
                chars.next();
                continue;
            }
            '=' => {
                chars.next();
                if chars.next_if_eq(&'=').is_some() { Token::Equal("==") } else { Token::Equal("=") }
            }
            '!' => {
                chars.next();
                if chars.next_if_eq(&'=').is_some() { Token::NotEqual } else { Token::Not }
            }
            '(' | ')' | ',' | '>' | '<' => {
                chars.next();
                match c {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    ',' => Token::Comma,
                    '>' => Token::Greater,
                    _ => Token::Less,
                }
            }
            _ => {
                let mut word = String::new();
                while let Some(c) = chars.next_if(|c| !" \t\r\n=!(),><".contains(*c)) {
                    word.push(c);
                }
                Token::Word(word)
            }
        };
        tokens.push(token);
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, Status> {
        let negated = self.peek() == &Token::Not;
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(bad(&format!("found '{}', expected: identifier", other.text()))),
        };
        check_key(&key)?;
        if negated || matches!(self.peek(), Token::End | Token::Comma) {
            let test = if negated { Test::Missing } else { Test::Exists };
            return Ok(Requirement { key, test });
        }
        let test = self.test(&key)?;
        Ok(Requirement { key, test })
    }

    fn test(&mut self, key: &str) -> Result<Test, Status> {
        match self.next() {
            Token::Equal(_) => Ok(Test::In(vec![self.value(key)?])),
            Token::NotEqual => Ok(Test::NotIn(vec![self.value(key)?])),
            Token::Word(word) if word == "in" => Ok(Test::In(self.values(key)?)),
            Token::Word(word) if word == "notin" => Ok(Test::NotIn(self.values(key)?)),
            Token::Greater => Ok(Test::Greater(self.number()?)),
            Token::Less => Ok(Test::Less(self.number()?)),
            other => Err(bad(&format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()))),
        }
    }

    /// A value may be empty: `-l app=`.
    fn value(&mut self, key: &str) -> Result<String, Status> {
        match self.peek().clone() {
            Token::End | Token::Comma => Ok(String::new()),
            Token::Word(word) => {
                self.at += 1;
                check_value(key, &word)?;
                Ok(word)
            }
            other => Err(bad(&format!("found '{}', expected: identifier", other.text()))),
        }
    }

    fn number(&mut self) -> Result<i64, Status> {
        match self.next() {
            Token::Word(word) => {
                word.parse().map_err(|_| bad("for 'Gt', 'Lt' operators, the value must be an integer"))
            }
            other => Err(bad(&format!("found '{}', expected: identifier", other.text()))),
        }
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, Status> {
        let open = self.next();
        if open != Token::Open {
            return Err(bad(&format!("found '{}' expected: '('", open.text())));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    check_value(key, &word)?;
                    values.push(word);
                    match self.next() {
                        Token::Comma => {
                            if self.peek() == &Token::Close {
                                values.push(String::new());
                            }
                        }
                        Token::Close => return Ok(values),
                        other => return Err(bad(&format!("found '{}', expected: ',' or ')'", other.text()))),
                    }
                }
                Token::Comma => values.push(String::new()),
                Token::Close => return Ok(values),
                other => return Err(bad(&format!("found '{}', expected: ',', or identifier", other.text()))),
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), Status> {
    match crate::validate::names::qualified_name(key) {
        None => Ok(()),
        Some(problem) => {
            let value = serde_json::Value::from(key);
            Err(bad(&format!("key: Invalid value: {value}: {problem}")))
        }
    }
}

fn check_value(key: &str, value: &str) -> Result<(), Status> {
    match crate::validate::names::label_value(value) {
        None => Ok(()),
        Some(problem) => {
            let quoted = serde_json::Value::from(value);
            Err(bad(&format!("values[0][{key}]: Invalid value: {quoted}: {problem}")))
        }
    }
}

/// `a=b,c!=d` over the fields of a kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector(pub Vec<FieldTest>);

#[derive(Debug, Clone, PartialEq)]
pub struct FieldTest {
    pub field: String,
    pub equal: bool,
    pub value: String,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, Status> {
        let mut tests = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let (field, equal, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, true, value)
            } else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            tests.push(FieldTest { field: field.trim().into(), equal, value: unescape(value) });
        }
        Ok(FieldSelector(tests))
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|test| (get(&test.field).unwrap_or_default() == test.value) == test.equal)
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        parts.last_mut().expect("starts with one part").push(c);
    }
    parts
}

fn unescape(value: &str) -> String {
    let mut out = String::new();
    let mut escaped = false;
    for c in value.chars() {
        if c == '\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn every_operator_matches_as_kubectl_users_expect() {
        let labels = [("app", "web"), ("tier", "5"), ("empty", "")];
        for yes in [
            "",
            "app=web",
            "app==web",
            "app",
            "!gone",
            "app!=db",
            "gone!=x",
            "app in (web,db)",
            "app notin (db)",
            "gone notin (x)",
            "tier>4",
            "tier<6",
            "app=web,tier=5",
            "empty=",
            "empty in ()",
            " app = web ",
        ] {
            let expected = yes != "empty in ()";
            assert_eq!(matches(yes, &labels), expected, "{yes}");
        }
        for no in
            ["app=db", "gone", "!app", "app in (db)", "app notin (web)", "tier>5", "tier<5", "app=web,tier=6"]
        {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn errors_are_worded_as_the_real_server_words_them() {
        let message = |text: &str| LabelSelector::parse(text).unwrap_err().message;
        assert_eq!(message("a===b"), "unable to parse requirement: found '=', expected: identifier");
    }

    #[test]
    fn field_selectors_know_escapes() {
        let selector = FieldSelector::parse(r"metadata.name=a\,b,x!=y").unwrap();
        assert_eq!(selector.0[0].value, "a,b");
        assert!(selector.matches(|field| (field == "metadata.name").then_some("a,b")));
    }
}
