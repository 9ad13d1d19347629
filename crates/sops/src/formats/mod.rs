//! The formats sops knows: each is read into, and written from, the same tree.

mod binary;
mod dotenv;
mod ini;
mod json;
mod yaml;

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::flatten::unflatten;
use crate::tree::{Branch, Item, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Yaml,
    Json,
    Dotenv,
    Ini,
    /// Anything: the encrypted file is JSON with the content as one string.
    Binary,
}

impl Format {
    /// What sops takes a file for by its name.
    pub fn of_path(path: &str) -> Self {
        match path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json") => Self::Json,
            Some("env") => Self::Dotenv,
            Some("ini") => Self::Ini,
            Some(_) | None => Self::Binary,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Dotenv => "dotenv",
            Self::Ini => "ini",
            Self::Binary => "binary",
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "yaml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            "dotenv" => Ok(Self::Dotenv),
            "ini" => Ok(Self::Ini),
            "binary" => Ok(Self::Binary),
            _ => Err(format!("unknown format {text:?}: use yaml, json, dotenv, ini or binary")),
        }
    }
}

/// The documents of an encrypted file, and its metadata apart from them.
pub(crate) fn read(bytes: &[u8], format: Format) -> Result<(Vec<Branch>, Branch), Error> {
    match format {
        Format::Yaml => nested(yaml::read(bytes)?),
        Format::Json | Format::Binary => nested(vec![json::read(bytes, format)?]),
        Format::Dotenv => prefixed(dotenv::read(bytes)?),
        Format::Ini => {
            let (branches, mut metadata) = nested(vec![ini::read(bytes)?])?;
            for item in &mut metadata {
                if let Item::Entry(_, Value::Str(text)) = item {
                    *text = replace(text, b"\\n", b"\n");
                }
            }
            Ok((branches, unflatten(metadata)?))
        }
    }
}

pub(crate) fn write(branches: &[Branch], format: Format) -> Result<Vec<u8>, Error> {
    match format {
        Format::Yaml => yaml::write(branches),
        Format::Json => json::write(branches),
        Format::Dotenv => dotenv::write(branches),
        Format::Ini => ini::write(branches),
        Format::Binary => binary::write(branches),
    }
}

const METADATA: &[u8] = b"sops";
const METADATA_PREFIX: &[u8] = b"sops_";

/// Takes the entry `sops` out of every document; that of the first one counts.
fn nested(mut branches: Vec<Branch>) -> Result<(Vec<Branch>, Branch), Error> {
    let mut metadata = None;
    for (index, branch) in branches.iter_mut().enumerate() {
        let is_metadata = |item: &mut Item| matches!(item, Item::Entry(key, _) if key == METADATA);
        for item in branch.extract_if(.., is_metadata) {
            let Item::Entry(_, value) = item else { continue };
            if index > 0 {
                continue;
            }
            let Value::Map(found) = value else {
                return Err(Error::Metadata {
                    field: "sops".to_owned(),
                    problem: format!("{} where a mapping is expected", value.kind()),
                });
            };
            if metadata.replace(found).is_some() {
                return Err(Error::Metadata { field: "sops".to_owned(), problem: "given twice".to_owned() });
            }
        }
    }
    let metadata = metadata.filter(|found| !found.is_empty()).ok_or(Error::NotEncrypted)?;
    Ok((branches, metadata))
}

/// Takes the entries whose keys begin with `sops_` out of the only document.
fn prefixed(mut branch: Branch) -> Result<(Vec<Branch>, Branch), Error> {
    let is_metadata =
        |item: &mut Item| matches!(item, Item::Entry(key, _) if key.starts_with(METADATA_PREFIX));
    let metadata: Branch = branch
        .extract_if(.., is_metadata)
        .map(|item| match item {
            Item::Entry(key, value) => Item::Entry(key[METADATA_PREFIX.len()..].to_vec(), value),
            Item::Comment(comment) => Item::Comment(comment),
        })
        .collect();
    if metadata.is_empty() {
        return Err(Error::NotEncrypted);
    }
    Ok((vec![branch], unflatten(metadata)?))
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn syntax(format: Format, problem: impl Into<String>) -> Error {
    Error::Syntax { format, problem: problem.into() }
}

fn output(format: Format, problem: impl Into<String>) -> Error {
    Error::Output { format, problem: problem.into() }
}

/// A key for a message.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
