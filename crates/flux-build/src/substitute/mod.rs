//! Post-build substitution: `${name}` and its operators, with the grammar of Flux's envsubst, odd corners included.
//!
//! `$name` and `$(name)` are left alone, `$$` is a dollar sign. A default applies to an unset *or empty*
//! variable, and `:+` and `:?` are just other ways to write a default, unlike in bash.

mod glob;
mod operator;
mod parse;
mod resource;

use std::collections::{BTreeMap, BTreeSet};

pub use resource::{Error as ResourceError, built, resource};

use operator::Operator;
use parse::Node;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("bad substitution")]
    BadSubstitution,
    #[error("missing closing brace")]
    MissingClosingBrace,
    #[error("unable to parse variable name")]
    VariableName,
    #[error("unable to parse substitution within function")]
    WithinFunction,
    #[error("unable to parse default function")]
    DefaultFunction,
    #[error("variable not set (strict mode): {}", quoted(.0))]
    NotSet(BTreeSet<String>),
    #[error("negative length in '{0}'")]
    NegativeLength(String),
    #[error("substitutions are nested more than {} deep", parse::DEEPEST)]
    TooDeep,
    #[error("the result is larger than {LARGEST} bytes")]
    TooLarge,
}

/// Defaults can repeat a long value many times; no manifest is this large.
const LARGEST: usize = 64 << 20;

fn quoted(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Replaces every substitution in `text`. In strict mode all unknown variables are reported together.
pub fn substitute(text: &str, variables: &BTreeMap<String, String>, strict: bool) -> Result<String, Error> {
    let nodes = parse::parse(text)?;
    let mut evaluation = Evaluation { variables, strict, unset: BTreeSet::new() };
    let mut out = Vec::with_capacity(text.len());
    for node in &nodes {
        evaluation.write(node, &mut out)?;
    }
    if !evaluation.unset.is_empty() {
        return Err(Error::NotSet(evaluation.unset));
    }
    Ok(lossy(&out))
}

struct Evaluation<'a> {
    variables: &'a BTreeMap<String, String>,
    strict: bool,
    unset: BTreeSet<String>,
}

impl Evaluation<'_> {
    fn write(&mut self, node: &Node, out: &mut Vec<u8>) -> Result<(), Error> {
        match node {
            Node::Text(text) => out.extend_from_slice(text.as_bytes()),
            Node::Variable { name, operator, arguments } => {
                // Arguments are evaluated even when they are not needed, as upstream does: an unknown variable
                // in an unused default is an error too.
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    let mut value = Vec::new();
                    self.write(argument, &mut value)?;
                    values.push(value);
                }
                let value = self.variables.get(name);
                if value.is_none() && self.strict && *operator != Operator::Default {
                    self.unset.insert(name.clone());
                    return Ok(());
                }
                let value = value.map_or(&b""[..], |value| value.as_bytes());
                out.extend_from_slice(&operator.apply(name, value, &values)?);
            }
        }
        if out.len() > LARGEST {
            return Err(Error::TooLarge);
        }
        Ok(())
    }
}

/// Offsets count bytes and may cut a character in two; each stray byte becomes a replacement character.
fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, broken) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                text.push('\u{fffd}');
                rest = &broken[1..];
            }
        }
    }
}

/// Whether `name` may be a variable.
pub fn is_variable_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && characters.all(|other| other == '_' || other.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, strict: bool) -> Result<String, Error> {
        let variables = [("a", "1"), ("word", "Hello"), ("empty", ""), ("path", "/x/y.tar.gz")];
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        substitute(text, &variables, strict)
    }

    #[test]
    fn plain_dollars_are_left_alone() {
        assert_eq!(with("$a $(a) $$ $${a}", true).unwrap(), "$a $(a) $ ${a}");
    }

    #[test]
    fn defaults_serve_the_unset_and_the_empty() {
        assert_eq!(
            with("${nope:-x} ${empty:=x} ${a:=x} ${nope=x} ${nope:+x} ${nope:?x}", true).unwrap(),
            "x x 1 x x x"
        );
        assert_eq!(with("${nope:-${a}-${word}}", true).unwrap(), "1-Hello");
    }

    #[test]
    fn operators() {
        assert_eq!(
            with("${#word} ${word^^} ${word,} ${word:1:3} ${path##*/} ${path%%.*} ${word//l/L}", true)
                .unwrap(),
            "5 HELLO hello ell y.tar.gz /x/y HeLLo"
        );
    }

    #[test]
    fn all_unknown_variables_are_named_together() {
        let error = with("${x} ${a} ${y:1} ${z:-ok}", true).unwrap_err();
        assert_eq!(error.to_string(), "variable not set (strict mode): \"x\", \"y\"");
        assert_eq!(with("<${x}>", false).unwrap(), "<>");
    }

    #[test]
    fn malformed_substitutions_are_errors() {
        for text in ["${", "${a", "${a-b}", "${ a }", "${}", "${a.b}", "${a/b}", "${a^^^}"] {
            assert!(with(text, false).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = format!("{}x{}", "${n:-".repeat(10_000), "}".repeat(10_000));
        assert_eq!(with(&deep, false), Err(Error::TooDeep));
    }
}
