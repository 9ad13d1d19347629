//! The path language of `--set`: `a.b=c`, `list[0].x=1`, `a={x,y}`, `\` escapes, commas between assignments. And of
//! `--set-literal`, which has neither escapes nor commas: its one value is all the rest of the text.
//!
//! A recursive descent over the text that writes into the tree as it goes, since what is already there decides what a path may do.

use serde_json::{Map, Value as Json};

use crate::quote::go_quote;

/// Helm's limits: how large a list index may be, and how many names a path may have.
const MAX_INDEX: i64 = 65536;
const MAX_NESTED_NAMES: usize = 30;
/// How many `[…]` may follow each other; Helm has no limit here, but needs a stack for each.
const MAX_NESTED_INDEXES: usize = 1000;

/// Go's `%q` of a `[]rune`.
fn quoted_runes(text: &str) -> String {
    let runes: Vec<String> = text.chars().map(|c| gotemplate::quote_rune(u32::from(c))).collect();
    format!("[{}]", runes.join(" "))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("key {} has no value", go_quote(.0))]
    NoValue(String),
    #[error("key {} has no value (cannot end with ,)", go_quote(.0))]
    EndsWithComma(String),
    #[error("key map {} has no value", go_quote(.0))]
    EmptyMap(String),
    #[error("value name nested level is greater than maximum supported nested level of {MAX_NESTED_NAMES}")]
    TooDeep,
    #[error("error parsing index: {0}")]
    Index(String),
    #[error("negative {0} index not allowed")]
    NegativeIndex(i64),
    #[error("index of {0} is greater than maximum supported index of {MAX_INDEX}")]
    LargeIndex(i64),
    #[error("unexpected data at end of array index: {}", quoted_runes(.0))]
    AfterIndex(String),
    #[error("list must terminate with '}}'")]
    OpenList,
    /// Go's failed type assertion, which Helm reports.
    #[error("unable to parse key: interface conversion: interface {{}} is {found}, not {wanted}")]
    WrongType { found: &'static str, wanted: &'static str },
    #[error("{0}")]
    Json(String),
    #[error("{0}")]
    File(String),
    /// The text ended where more was expected; ends the parse without harm at the outermost level.
    #[error("EOF")]
    End,
}

pub(super) enum Reading<'a> {
    Typed,
    Text,
    Json,
    Literal,
    File(&'a mut dyn FnMut(&str) -> Result<String, String>),
}

pub(super) fn parse_into(
    text: &str,
    values: &mut Map<String, Json>,
    reading: Reading<'_>,
) -> Result<(), SetError> {
    let mut parser = Parser { rest: text, reading };
    loop {
        match parser.key(values, 0) {
            Ok(()) => {}
            Err(SetError::End) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct Parser<'t, 'r> {
    rest: &'t str,
    reading: Reading<'r>,
}

/// Text up to a stop character, and which one it was; `None` at the end of the text.
type Run = (String, Option<char>);

impl Parser<'_, '_> {
    fn key(&mut self, values: &mut Map<String, Json>, depth: usize) -> Result<(), SetError> {
        let (key, stop) = match self.reading {
            Reading::Literal => self.until(&['=', '[', '.']),
            _ => self.until(&['=', '[', ',', '.']),
        };
        match stop {
            None if key.is_empty() => Err(SetError::End),
            None => Err(SetError::NoValue(key)),
            Some('[') => self.indexed(values, key, depth),
            Some('=') => self.assign(values, key),
            Some(',') => {
                put(values, &key, Json::String(String::new()));
                Err(SetError::EndsWithComma(key))
            }
            Some(_) => self.nested(values, key, depth + 1),
        }
    }

    fn indexed(&mut self, values: &mut Map<String, Json>, key: String, depth: usize) -> Result<(), SetError> {
        let index = self.index()?;
        let mut list = match values.get(&key) {
            None => Vec::new(),
            Some(Json::Array(items)) => items.clone(),
            Some(other) => return Err(wrong_type(other, "[]interface {}")),
        };
        let result = self.list_item(&mut list, index, depth, 0);
        if !matches!(result, Err(SetError::WrongType { .. })) {
            put(values, &key, Json::Array(list));
        }
        result
    }

    fn assign(&mut self, values: &mut Map<String, Json>, key: String) -> Result<(), SetError> {
        if let Some(value) = self.whole_value() {
            put(values, &key, value?);
            return Ok(());
        }
        match self.list()? {
            List::Items(items) => {
                put(values, &key, Json::Array(items));
                Ok(())
            }
            List::End => {
                put(values, &key, Json::String(String::new()));
                Err(SetError::End)
            }
            List::Scalar => {
                let (text, _) = self.until(&[',']);
                let value = self.read(&text)?;
                put(values, &key, value);
                Ok(())
            }
        }
    }

    fn nested(&mut self, values: &mut Map<String, Json>, key: String, depth: usize) -> Result<(), SetError> {
        if depth > MAX_NESTED_NAMES {
            return Err(SetError::TooDeep);
        }
        let mut inner = match values.get_mut(&key) {
            None => Map::new(),
            Some(Json::Object(entries)) => std::mem::take(entries),
            Some(other) => return Err(wrong_type(other, "map[string]interface {}")),
        };
        let result = self.key(&mut inner, depth);
        let empty = inner.is_empty();
        if !empty {
            put(values, &key, Json::Object(inner));
        }
        match result {
            Ok(()) if empty => Err(SetError::EmptyMap(key)),
            result => result,
        }
    }

    fn index(&mut self) -> Result<i64, SetError> {
        let (text, stop) = self.until(&[']']);
        // An index that is never closed ends the text, which Helm lets pass.
        if stop.is_none() {
            return Err(SetError::End);
        }
        parse_index(&text).map_err(SetError::Index)
    }

    fn list_item(
        &mut self,
        list: &mut Vec<Json>,
        index: i64,
        depth: usize,
        indexes: usize,
    ) -> Result<(), SetError> {
        if index < 0 {
            return Err(SetError::NegativeIndex(index));
        }
        if indexes > MAX_NESTED_INDEXES {
            return Err(SetError::TooDeep);
        }
        let (text, stop) = self.until(&['[', '.', '=']);
        match stop {
            _ if !text.is_empty() => Err(SetError::AfterIndex(text)),
            None => Err(SetError::End),
            Some('=') => self.assign_item(list, index),
            Some('[') => {
                let next = self.index()?;
                let mut inner = match existing(list, index) {
                    None | Some(Json::Null) => Vec::new(),
                    Some(Json::Array(items)) => items.clone(),
                    Some(other) => return Err(wrong_type(other, "[]interface {}")),
                };
                self.list_item(&mut inner, next, depth, indexes + 1)?;
                set_index(list, index, Json::Array(inner))
            }
            Some(_) => {
                let mut inner = match existing(list, index) {
                    Some(Json::Object(entries)) => entries.clone(),
                    _ => Map::new(),
                };
                self.key(&mut inner, depth)?;
                set_index(list, index, Json::Object(inner))
            }
        }
    }

    fn assign_item(&mut self, list: &mut Vec<Json>, index: i64) -> Result<(), SetError> {
        if let Some(value) = self.whole_value() {
            return set_index(list, index, value?);
        }
        let value = match self.list()? {
            List::Items(items) => Json::Array(items),
            List::End => Json::String(String::new()),
            List::Scalar => {
                let (text, _) = self.until(&[',']);
                self.read(&text)?
            }
        };
        set_index(list, index, value)
    }

    /// The value right of an `=` where it has no syntax of ours.
    fn whole_value(&mut self) -> Option<Result<Json, SetError>> {
        match self.reading {
            Reading::Json => Some(self.json_value()),
            Reading::Literal => Some(Ok(Json::String(std::mem::take(&mut self.rest).to_owned()))),
            Reading::Typed | Reading::Text | Reading::File(_) => None,
        }
    }

    /// `{a,b}` right of an `=`.
    fn list(&mut self) -> Result<List, SetError> {
        let Some(first) = self.rest.chars().next() else { return Ok(List::End) };
        if first != '{' {
            return Ok(List::Scalar);
        }
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        loop {
            let (text, stop) = self.until(&[',', '}']);
            match stop {
                None => return Err(SetError::OpenList),
                Some('}') => {
                    self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                    items.push(self.read(&text)?);
                    return Ok(List::Items(items));
                }
                Some(_) => items.push(self.read(&text)?),
            }
        }
    }

    /// A JSON value and the comma after it; nothing at all is null.
    fn json_value(&mut self) -> Result<Json, SetError> {
        if self.skip_blank() {
            return Ok(Json::Null);
        }
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<Json>();
        let value = match stream.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return Err(SetError::Json(error.to_string())),
            None => return Err(SetError::Json("unexpected end of JSON input".to_owned())),
        };
        self.rest = &self.rest[stream.byte_offset()..];
        self.skip_blank();
        Ok(crate::document::with_float_numbers(value))
    }

    /// Skips spaces and one comma; whether that was all there was before the next value.
    fn skip_blank(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return true;
        }
        match self.rest.strip_prefix(',') {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn read(&mut self, text: &str) -> Result<Json, SetError> {
        match &mut self.reading {
            Reading::Typed => Ok(typed(text)),
            Reading::Text | Reading::Json | Reading::Literal => Ok(Json::String(text.to_owned())),
            Reading::File(read) => read(text).map(Json::String).map_err(SetError::File),
        }
    }

    fn until(&mut self, stops: &[char]) -> Run {
        let mut found = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            if stops.contains(&c) {
                self.rest = &self.rest[at + c.len_utf8()..];
                return (found, Some(c));
            }
            match c {
                '\\' if !matches!(self.reading, Reading::Literal) => match chars.next() {
                    Some((_, escaped)) => found.push(escaped),
                    None => break,
                },
                c => found.push(c),
            }
        }
        self.rest = "";
        (found, None)
    }
}

enum List {
    Items(Vec<Json>),
    Scalar,
    /// The text ended before any value.
    End,
}

/// `--set`'s idea of what a text is. Numbers with a leading zero stay text, so that `0644` and `007` survive.
fn typed(text: &str) -> Json {
    if text.eq_ignore_ascii_case("true") {
        return Json::Bool(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Json::Bool(false);
    }
    if text.eq_ignore_ascii_case("null") {
        return Json::Null;
    }
    if text == "0" {
        return Json::from(0_i64);
    }
    match text.parse::<i64>() {
        Ok(whole) if !text.starts_with('0') => Json::from(whole),
        _ => Json::String(text.to_owned()),
    }
}

/// Helm sets nothing for an empty key, and says nothing.
fn put(values: &mut Map<String, Json>, key: &str, value: Json) {
    if !key.is_empty() {
        values.insert(key.to_owned(), value);
    }
}

fn existing(list: &[Json], index: i64) -> Option<&Json> {
    list.get(usize::try_from(index).ok()?)
}

fn set_index(list: &mut Vec<Json>, index: i64, value: Json) -> Result<(), SetError> {
    let at = usize::try_from(index).map_err(|_| SetError::NegativeIndex(index))?;
    if index > MAX_INDEX {
        return Err(SetError::LargeIndex(index));
    }
    if list.len() <= at {
        list.resize(at + 1, Json::Null);
    }
    list[at] = value;
    Ok(())
}

/// Go's `strconv.Atoi`, with its error text.
fn parse_index(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let wrong = |why: &str| format!("strconv.Atoi: parsing {}: {why}", go_quote(text));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong("invalid syntax"));
    }
    text.parse().map_err(|_| wrong("value out of range"))
}

fn wrong_type(found: &Json, wanted: &'static str) -> SetError {
    let found = match found {
        Json::Null => "nil",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    SetError::WrongType { found, wanted }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::values::{SetMode, Values};

    fn set(expression: &str) -> Result<serde_json::Value, String> {
        let mut values = Values::new();
        values.set(expression, SetMode::Typed).map_err(|e| e.to_string())?;
        Ok(serde_json::Value::Object(values.into_map()))
    }

    #[test]
    fn paths_lists_and_types() {
        for (expression, expected) in [
            ("a=1,b=true,c=null,d=x,e=007,f=-5", json!({"a":1,"b":true,"c":null,"d":"x","e":"007","f":-5})),
            ("a.b.c=d", json!({"a":{"b":{"c":"d"}}})),
            ("a={x,y,1}", json!({"a":["x","y",1]})),
            ("a[1]=x", json!({"a":[null,"x"]})),
            ("a[0][1].b=x", json!({"a":[[null,{"b":"x"}]]})),
            ("a\\.b=c\\,d", json!({"a.b":"c,d"})),
            ("a=", json!({"a":""})),
            ("=x", json!({})),
            ("a={}", json!({"a":[""]})),
            ("a={x,y},b=1", json!({"a":["x","y"],"b":1})),
        ] {
            assert_eq!(set(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn errors_are_helms() {
        for (expression, expected) in [
            ("a", "key \"a\" has no value"),
            ("a,b=1", "key \"a\" has no value (cannot end with ,)"),
            ("a[x]=1", "error parsing index: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("a[-1]=1", "negative -1 index not allowed"),
            ("a[99999]=1", "index of 99999 is greater than maximum supported index of 65536"),
            ("a[0]b=1", "unexpected data at end of array index: ['b']"),
            ("a={x", "list must terminate with '}'"),
            (
                "a=1,a.b=2",
                "unable to parse key: interface conversion: interface {} is int64, not map[string]interface {}",
            ),
            ("a.=1", "key map \"a\" has no value"),
        ] {
            assert_eq!(set(expression), Err(expected.to_owned()), "{expression}");
        }
        assert!(set(&format!("{}=1", vec!["a"; 32].join("."))).is_err());
        assert!(set(&"a[0]".repeat(100_000)).is_err());
    }

    #[test]
    fn what_is_there_already_is_kept() {
        let mut values = Values::from_json(json!({"a": {"b": 1.0, "l": ["x", {"k": "v"}]}})).unwrap();
        values.set("a.c=2,a.l[1].m=3", SetMode::Typed).unwrap();
        assert_eq!(json!(values.as_map()), json!({"a": {"b": 1.0, "c": 2, "l": ["x", {"k": "v", "m": 3}]}}));
    }

    #[test]
    fn json_values_stand_between_commas() {
        let mut values = Values::new();
        values.set("a={\"x\":[1,null]} ,b=\"y\",c=", SetMode::Json).unwrap();
        assert_eq!(json!(values.as_map()), json!({"a": {"x": [1.0, null]}, "b": "y", "c": null}));
    }
}
