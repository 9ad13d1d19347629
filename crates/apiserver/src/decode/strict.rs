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
    let _ = reader.deserialize_any(Walk { path: &mut path, found: &mut found });
    found
}

struct Walk<'a> {
    path: &'a mut Vec<String>,
    found: &'a mut Vec<String>,
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            self.path.push(format!("[{at}]"));
            let more = items.next_element_seed(Walk { path: self.path, found: self.found })?.is_some();
            self.path.pop();
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.path.push(key.clone());
            if !seen.insert(key) {
                self.found.push(shown(self.path));
            }
            fields.next_value_seed(Walk { path: self.path, found: self.found })?;
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
