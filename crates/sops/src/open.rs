//! The walk over a file that opens its values and computes the MAC over them.

use sha2::{Digest, Sha512};

use crate::cipher::{self, DataKey};
use crate::metadata::Metadata;
use crate::rules::Matched;
use crate::tree::{Branch, Comment, Item, Value, decimal};
use crate::{Error, Mac, time};

/// Starts the hash of a file whose MAC covers encrypted values only, so that the two kinds never agree. It is the
/// SHA-256 of `sops`.
const ONLY_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b,
    0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// All documents of a file, opened, and whether its MAC agrees.
pub(crate) fn open(
    branches: &[Branch],
    metadata: &Metadata,
    key: &DataKey,
) -> Result<(Vec<Branch>, Mac), Error> {
    let mut walk = Walk { metadata, key, hash: Sha512::new(), path: Vec::new() };
    if metadata.mac_only_encrypted {
        walk.hash.update(ONLY_ENCRYPTED);
    }
    let opened = branches
        .iter()
        .map(|branch| walk.branch(branch, Matched::default()))
        .collect::<Result<Vec<Branch>, Error>>()?;
    let computed: String = walk.hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect();
    Ok((opened, check(metadata, key, &computed)))
}

fn check(metadata: &Metadata, key: &DataKey, computed: &str) -> Mac {
    let place = time::to_seconds(&metadata.last_modified);
    match cipher::decrypt(&metadata.mac, key, place.as_bytes()) {
        Ok(Value::Str(mac)) if mac == computed.as_bytes() => Mac::Verified,
        Ok(Value::Str(mac)) if mac.is_empty() => Mac::Missing,
        Ok(_) => Mac::Mismatch,
        Err(problem) => Mac::Unreadable(problem),
    }
}

struct Walk<'a> {
    metadata: &'a Metadata,
    key: &'a DataKey,
    hash: Sha512,
    /// The keys on the way, each followed by a colon.
    path: Vec<u8>,
}

/// The comments since the last value of a collection.
#[derive(Clone, Copy)]
struct Comments {
    outer: Matched,
    here: bool,
    before: bool,
}

impl Comments {
    fn inside(outer: Matched) -> Self {
        Self { outer, here: false, before: false }
    }

    fn see(&mut self, matches: bool) {
        self.before = self.here;
        self.here |= matches;
    }

    fn forget(&mut self) {
        (self.here, self.before) = (false, false);
    }

    fn matched(self) -> Matched {
        Matched {
            key: self.outer.key,
            comment: self.outer.comment || self.here,
            earlier_comment: self.outer.comment || self.before,
        }
    }
}

impl Walk<'_> {
    fn branch(&mut self, items: &[Item], outer: Matched) -> Result<Branch, Error> {
        let rules = &self.metadata.rules;
        let mut comments = Comments::inside(outer);
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::Comment(comment) => {
                    comments.see(rules.matches_comment(&comment.text));
                    let opened = match self.comment(comment, comments.matched())? {
                        Value::Comment(comment) => comment,
                        Value::Str(text) => Comment { text, inline: comment.inline },
                        _ => return Err(self.problem("a comment holds something else")),
                    };
                    out.push(Item::Comment(opened));
                }
                Item::Entry(key, value) => {
                    let length = self.path.len();
                    self.path.extend_from_slice(key);
                    self.path.push(b':');
                    let mut matched = comments.matched();
                    matched.key = outer.key || rules.matches_key(key);
                    let opened = self.value(value, matched)?;
                    if matches!(opened, Value::Comment(_)) {
                        return Err(self.problem("it is a comment"));
                    }
                    self.path.truncate(length);
                    out.push(Item::Entry(key.clone(), opened));
                    comments.forget();
                }
            }
        }
        Ok(out)
    }

    fn list(&mut self, items: &[Value], outer: Matched) -> Result<Vec<Value>, Error> {
        let mut comments = Comments::inside(outer);
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let is_comment = if let Value::Comment(comment) = item {
                comments.see(self.metadata.rules.matches_comment(&comment.text));
                true
            } else {
                false
            };
            out.push(self.value(item, comments.matched())?);
            if !is_comment {
                comments.forget();
            }
        }
        Ok(out)
    }

    fn value(&mut self, value: &Value, matched: Matched) -> Result<Value, Error> {
        match value {
            Value::Map(items) => return self.branch(items, matched).map(Value::Map),
            Value::List(items) => return self.list(items, matched).map(Value::List),
            Value::Comment(comment) => return self.comment(comment, matched),
            // There is nothing to hide in a null.
            Value::Null => return Ok(Value::Null),
            Value::Str(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Time(_)
            | Value::Bytes(_) => {}
        }
        let encrypted = self.metadata.rules.is_encrypted(matched, false);
        let opened = match value {
            Value::Str(text) if encrypted => {
                cipher::decrypt(text, self.key, &self.place()).map_err(|problem| self.problem(problem))?
            }
            _ if encrypted => {
                return Err(self.problem("it is not encrypted, but the rules of the file say so"));
            }
            _ => copy(value),
        };
        self.count(&opened, encrypted);
        Ok(opened)
    }

    /// A comment that does not open is taken as it is: old versions of sops did not encrypt them.
    fn comment(&mut self, comment: &Comment, matched: Matched) -> Result<Value, Error> {
        let encrypted = self.metadata.rules.is_encrypted(matched, true);
        let opened =
            if encrypted { cipher::decrypt(&comment.text, self.key, &self.place()).ok() } else { None };
        let opened = opened.unwrap_or_else(|| Value::Comment(comment.clone()));
        self.count(&opened, encrypted);
        Ok(opened)
    }

    /// Adds a value to the MAC. Comments never count, what was stored as one but is none does.
    fn count(&mut self, value: &Value, encrypted: bool) {
        if self.metadata.mac_only_encrypted && !encrypted {
            return;
        }
        match value {
            Value::Str(bytes) | Value::Bytes(bytes) => self.hash.update(bytes),
            Value::Int(number) => self.hash.update(number.to_string()),
            Value::Float(number) => self.hash.update(decimal(*number)),
            Value::Bool(true) => self.hash.update("True"),
            Value::Bool(false) => self.hash.update("False"),
            Value::Time(time) => self.hash.update(time.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) | Value::Comment(_) => {}
        }
    }

    /// What binds a value to its place.
    fn place(&self) -> Vec<u8> {
        if self.path.is_empty() { b":".to_vec() } else { self.path.clone() }
    }

    fn problem(&self, problem: &'static str) -> Error {
        let path = String::from_utf8_lossy(&self.path).trim_end_matches(':').replace(':', ".");
        Error::Value { path: if path.is_empty() { "the top of the file".to_owned() } else { path }, problem }
    }
}

/// A scalar that stays as it is.
fn copy(value: &Value) -> Value {
    match value {
        Value::Str(text) => Value::Str(text.clone()),
        Value::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Value::Int(number) => Value::Int(*number),
        Value::Float(number) => Value::Float(*number),
        Value::Bool(flag) => Value::Bool(*flag),
        Value::Time(time) => Value::Time(*time),
        Value::Comment(comment) => Value::Comment(comment.clone()),
        Value::Null | Value::List(_) | Value::Map(_) => Value::Null,
    }
}
