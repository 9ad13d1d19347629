//! Finding keys that a JSON text holds twice, which a parsed object no longer shows.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// Paths of duplicated fields, in the order of the text. Text that is no JSON has none.
pub fn duplicates(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    // A syntax error was reported when the body was parsed.
    let _ = reader.deserialize_any(Walk { path: &mut path, found: &mut found, all: None });
    found
}

/// Sorts problems with fields by where the fields stand in the text, as a decoder meets them.
pub fn in_order(text: &[u8], problems: &mut [(String, String)]) {
    if problems.len() < 2 {
        return;
    }
    let (mut path, mut found, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(text);
    let _ = reader.deserialize_any(Walk { path: &mut path, found: &mut found, all: Some(&mut all) });
    let place: std::collections::HashMap<&str, usize> =
        all.iter().enumerate().map(|(at, path)| (path.as_str(), at)).collect();
    problems.sort_by_key(|(path, _)| place.get(path.as_str()).copied().unwrap_or(usize::MAX));
}

struct Walk<'a> {
    path: &'a mut Vec<String>,
    found: &'a mut Vec<String>,
    /// Every field, when its order matters.
    all: Option<&'a mut Vec<String>>,
}

impl<'de> serde::de::DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

macro_rules! ignore {
    ($($visit:ident($kind:ty))*) => {
        $(fn $visit<E>(self, _: $kind) -> Result<(), E> { Ok(()) })*
    };
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    ignore! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            self.path.push(format!("[{at}]"));
            let all = self.all.as_deref_mut();
            let more = items.next_element_seed(Walk { path: self.path, found: self.found, all })?.is_some();
            self.path.pop();
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.path.push(key.clone());
            if !seen.insert(key) {
                self.found.push(shown(self.path));
            }
            let all = self.all.as_deref_mut();
            fields.next_value_seed(Walk { path: self.path, found: self.found, all })?;
            if let Some(all) = &mut self.all {
                all.push(shown(self.path));
            }
            self.path.pop();
        }
        Ok(())
    }
}

fn shown(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if !text.is_empty() && !part.starts_with('[') {
            text.push('.');
        }
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn duplicated_keys_are_found_with_their_path() {
        let text = br#"{"data":{"x":1,"x":2},"list":[{"a":1,"a":2}],"data":{}}"#;
        assert_eq!(super::duplicates(text), ["data.x", "list[0].a", "data"]);
        assert!(super::duplicates(b"{bad").is_empty());
    }
}
