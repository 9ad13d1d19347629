//! `--set-literal`: the same paths as `--set` without escapes, and one value that is all the rest of the text.

use serde_json::{Map, Value as Json};

use super::set::{
    MAX_NESTED_INDEXES, MAX_NESTED_NAMES, SetError, existing, parse_index, put, set_index, wrong_type,
};

pub(super) fn parse_into(text: &str, values: &mut Map<String, Json>) -> Result<(), SetError> {
    match (Parser { rest: text }).key(values, 0) {
        Ok(()) | Err(SetError::End) => Ok(()),
        Err(error) => Err(error),
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn key(&mut self, values: &mut Map<String, Json>, depth: usize) -> Result<(), SetError> {
        let (key, stop) = self.until(&['=', '[', '.']);
        match stop {
            None if key.is_empty() => Err(SetError::End),
            None => Err(SetError::NoValue(key.to_owned())),
            Some('=') => {
                put(values, key, Json::String(self.take_rest()));
                Ok(())
            }
            Some('[') => {
                let index = self.index()?;
                let mut list = match values.get(key) {
                    None => Vec::new(),
                    Some(Json::Array(items)) => items.clone(),
                    Some(other) => return Err(wrong_type(other, "[]interface {}")),
                };
                let result = self.list_item(&mut list, index, depth, 0);
                put(values, key, Json::Array(list));
                result
            }
            Some(_) => self.nested(values, key, depth + 1),
        }
    }

    fn nested(&mut self, values: &mut Map<String, Json>, key: &str, depth: usize) -> Result<(), SetError> {
        if depth > MAX_NESTED_NAMES {
            return Err(SetError::TooDeep);
        }
        let mut inner = match values.get_mut(key) {
            None => Map::new(),
            Some(Json::Object(entries)) => std::mem::take(entries),
            Some(other) => return Err(wrong_type(other, "map[string]interface {}")),
        };
        let result = self.key(&mut inner, depth);
        let empty = inner.is_empty();
        if !empty {
            put(values, key, Json::Object(inner));
        }
        match result {
            Ok(()) if empty => Err(SetError::EmptyMap(key.to_owned())),
            result => result,
        }
    }

    fn index(&mut self) -> Result<i64, SetError> {
        match self.until(&[']']) {
            (text, Some(_)) => parse_index(text).map_err(SetError::Index),
            (_, None) => Err(SetError::End),
        }
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
            _ if !text.is_empty() => Err(SetError::AfterIndex(text.to_owned())),
            None => Err(SetError::End),
            Some('=') => {
                let value = self.take_rest();
                set_index(list, index, Json::String(value))
            }
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

    fn take_rest(&mut self) -> String {
        std::mem::take(&mut self.rest).to_owned()
    }

    fn until(&mut self, stops: &[char]) -> (&'t str, Option<char>) {
        match self.rest.char_indices().find(|(_, c)| stops.contains(c)) {
            Some((at, c)) => {
                let found = &self.rest[..at];
                self.rest = &self.rest[at + c.len_utf8()..];
                (found, Some(c))
            }
            None => (std::mem::take(&mut self.rest), None),
        }
    }
}
