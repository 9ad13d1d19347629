//! Words into a command, its flags and its arguments, by the rules of cobra and pflag.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_api::duration::{self, GoDuration};

use super::flag::Shape;
use super::{Args, Flag, Row, child, children, flags_of};
use crate::error::CliError;

/// What the words ask for.
#[derive(Debug)]
pub(crate) enum Parsed {
    Run(Invocation),
    /// Help for a command, or for the root.
    Help(Option<&'static Row>),
    /// `--version` of the root.
    Version,
}

/// A command, its arguments and its flags.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) row: &'static Row,
    pub(crate) args: Vec<String>,
    given: BTreeMap<&'static str, Vec<String>>,
    /// Deprecated flags that were given; their notice is due before anything else.
    pub(crate) notices: Vec<&'static str>,
}

pub(crate) fn parse(words: &[String]) -> Result<Parsed, CliError> {
    let (row, rest) = find(words);
    let flags = flags_of(row);
    let mut reading =
        Reading { flags, root: row.is_none(), given: BTreeMap::new(), args: Vec::new(), notices: Vec::new() };
    let asked = reading.read(&rest)?;
    match asked {
        Asked::Help => return Ok(Parsed::Help(row)),
        Asked::Version => return Ok(Parsed::Version),
        Asked::Run => {}
    }
    let Some(row) = row else {
        return match reading.args.first() {
            Some(word) => Err(unknown_command(word)),
            None => Ok(Parsed::Help(None)),
        };
    };
    if row.path == "help" {
        return Ok(Parsed::Help(find(&reading.args).0));
    }
    check_args(row, &reading.args)?;
    if row.args == Args::Group {
        return Ok(Parsed::Help(Some(row)));
    }
    Ok(Parsed::Run(Invocation { row, args: reading.args, given: reading.given, notices: reading.notices }))
}

/// The deepest command the words name, and the words without its path.
fn find(words: &[String]) -> (Option<&'static Row>, Vec<String>) {
    let mut row: Option<&'static Row> = None;
    let mut rest = Vec::new();
    let mut searching = true;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            rest.push(word.clone());
            rest.extend(words.cloned());
            break;
        }
        if searching && !word.starts_with('-') {
            match child(row.map_or("", |row| row.path), word) {
                Some(found) => {
                    row = Some(found);
                    continue;
                }
                None => searching = false,
            }
        }
        rest.push(word.clone());
        if searching
            && takes_next(row, word)
            && let Some(value) = words.next()
        {
            rest.push(value.clone());
        }
    }
    (row, rest)
}

/// Whether the value of this flag is the word after it.
fn takes_next(row: Option<&'static Row>, word: &str) -> bool {
    if word.contains('=') {
        return false;
    }
    let known = |matches: &dyn Fn(&Flag) -> bool| {
        flags_of(row).into_iter().find(|flag| matches(flag)).map(|flag| !flag.is_bool())
    };
    match word.strip_prefix("--") {
        Some("help" | "version") => false,
        Some(name) => known(&|flag| flag.name == name).unwrap_or(false),
        None => {
            let letters: Vec<char> = word.chars().skip(1).collect();
            letters.len() == 1 && known(&|flag| flag.short == letters.first().copied()).unwrap_or(false)
        }
    }
}

fn unknown_command(word: &str) -> CliError {
    let mut text = format!("unknown command {} for \"flux\"", quoted(word));
    let mut near = children("");
    near.retain(|row| {
        !row.hidden && (distance(word, row.name()) <= 2 || row.name().starts_with(&word.to_lowercase()))
    });
    // Whoever meant a command that Flux has always had is not sent to one of ours.
    if near.iter().any(|row| !super::is_ours(row)) {
        near.retain(|row| !super::is_ours(row));
    }
    if !near.is_empty() {
        text.push_str("\n\nDid you mean this?\n");
        for row in near {
            text.push_str(&format!("\t{}\n", row.name()));
        }
    }
    CliError::new(text)
}

/// Levenshtein distance, without regard to case.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) =
        (one.to_lowercase().chars().collect(), other.to_lowercase().chars().collect());
    let mut previous: Vec<usize> = (0..=other.len()).collect();
    for (i, left) in one.iter().enumerate() {
        let mut current = vec![i + 1];
        for (j, right) in other.iter().enumerate() {
            let replaced = previous[j] + usize::from(left != right);
            current.push(replaced.min(previous[j + 1] + 1).min(current[j] + 1));
        }
        previous = current;
    }
    previous[other.len()]
}

fn check_args(row: &Row, args: &[String]) -> Result<(), CliError> {
    let count = args.len();
    let problem = match (row.args, args.first()) {
        (Args::None, Some(word)) => format!("unknown command {} for \"flux {}\"", quoted(word), row.path),
        (Args::NoArgument, Some(_)) => "no argument required".to_owned(),
        (Args::Exactly(wanted), _) if count != wanted => format!("accepts {wanted} arg(s), received {count}"),
        (Args::AtMost(most), _) if count > most => format!("accepts at most {most} arg(s), received {count}"),
        _ => return Ok(()),
    };
    Err(CliError::new(problem))
}

enum Asked {
    Run,
    Help,
    Version,
}

struct Reading {
    flags: Vec<&'static Flag>,
    root: bool,
    given: BTreeMap<&'static str, Vec<String>>,
    args: Vec<String>,
    notices: Vec<&'static str>,
}

impl Reading {
    fn read(&mut self, words: &[String]) -> Result<Asked, CliError> {
        let mut asked = Asked::Run;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                self.args.extend(words.cloned());
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                if name == "help" {
                    asked = Asked::Help;
                } else if name == "version" && self.root {
                    asked = Asked::Version;
                } else {
                    self.long(name, value, &mut words)?;
                }
            } else if word.len() > 1 && word.starts_with('-') {
                match self.letters(&word[1..], &mut words)? {
                    Asked::Run => {}
                    other => asked = other,
                }
            } else {
                self.args.push(word.clone());
            }
        }
        Ok(asked)
    }

    fn long<'a>(
        &mut self,
        name: &str,
        value: Option<&str>,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), CliError> {
        let Some(flag) = self.flags.iter().find(|flag| flag.name == name).copied() else {
            return Err(CliError::new(format!("unknown flag: --{name}")));
        };
        let value = match value {
            Some(value) => value.to_owned(),
            None if flag.is_bool() => "true".to_owned(),
            None => words
                .next()
                .cloned()
                .ok_or_else(|| CliError::new(format!("flag needs an argument: --{name}")))?,
        };
        self.set(flag, &value)
    }

    /// `-A`, `-n ns`, `-nns`, `-Aw`.
    fn letters<'a>(
        &mut self,
        group: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<Asked, CliError> {
        for (at, letter) in group.char_indices() {
            let Some(flag) = self.flags.iter().find(|flag| flag.short == Some(letter)).copied() else {
                match letter {
                    'h' => return Ok(Asked::Help),
                    'v' if self.root => return Ok(Asked::Version),
                    _ => {
                        return Err(CliError::new(format!("unknown shorthand flag: '{letter}' in -{group}")));
                    }
                }
            };
            let rest = &group[at + letter.len_utf8()..];
            if let Some(value) = rest.strip_prefix('=') {
                self.set(flag, value)?;
                return Ok(Asked::Run);
            }
            if flag.is_bool() {
                self.set(flag, "true")?;
                continue;
            }
            let value = if rest.is_empty() { words.next().cloned() } else { Some(rest.to_owned()) };
            let value = value
                .ok_or_else(|| CliError::new(format!("flag needs an argument: '{letter}' in -{group}")))?;
            self.set(flag, &value)?;
            return Ok(Asked::Run);
        }
        Ok(Asked::Run)
    }

    fn set(&mut self, flag: &'static Flag, text: &str) -> Result<(), CliError> {
        let values = read_value(flag, text).map_err(|problem| {
            // With its letter, however it was written.
            let letter = flag.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
            let shown = format!("{letter}--{}", flag.name);
            CliError::new(format!("invalid argument {} for {} flag: {problem}", quoted(text), quoted(&shown)))
        })?;
        if flag.deprecated && !self.notices.contains(&flag.name) {
            self.notices.push(flag.name);
        }
        let known = self.given.entry(flag.name).or_default();
        if !matches!(flag.shape, Shape::List | Shape::Array | Shape::Pairs) {
            known.clear();
        }
        known.extend(values);
        Ok(())
    }
}

fn read_value(flag: &Flag, text: &str) -> Result<Vec<String>, String> {
    let one = |value: String| Ok(vec![value]);
    match flag.shape {
        Shape::Text | Shape::Array => one(text.to_owned()),
        Shape::Bool => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => one("true".to_owned()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => one("false".to_owned()),
            _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", quoted(text))),
        },
        Shape::List => Ok(comma_list(text)),
        Shape::Pairs => {
            let pairs = comma_list(text);
            match pairs.iter().find(|pair| !pair.contains('=')) {
                Some(pair) => Err(format!("{pair} must be formatted as key=value")),
                None => Ok(pairs),
            }
        }
        Shape::Duration => {
            let duration: GoDuration = text.parse().map_err(go_duration_error)?;
            one(duration.to_string())
        }
        Shape::Int => match text.parse::<i64>() {
            Ok(number) => one(number.to_string()),
            Err(_) => Err(format!("strconv.ParseInt: parsing {}: invalid syntax", quoted(text))),
        },
        Shape::Float => match text.parse::<f32>() {
            Ok(number) => one(number.to_string()),
            Err(_) => Err(format!("strconv.ParseFloat: parsing {}: invalid syntax", quoted(text))),
        },
        Shape::Checked(check) => one(check(text)?),
    }
}

/// In Go's words, without the advice that configuration errors carry.
fn go_duration_error(error: duration::Error) -> String {
    match error {
        duration::Error::Invalid(text) | duration::Error::TooLong(text) => {
            format!("time: invalid duration {}", quoted(&text))
        }
        duration::Error::MissingUnit(text) => format!("time: missing unit in duration {}", quoted(&text)),
        duration::Error::UnknownUnit { text, unit } => {
            format!("time: unknown unit {} in duration {}", quoted(&unit), quoted(&text))
        }
    }
}

/// One line of comma-separated values, where quotes keep commas together.
fn comma_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let empty = fields.last().is_none_or(String::is_empty);
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                push(&mut fields, '"');
            }
            '"' if quoted => quoted = false,
            '"' if empty => quoted = true,
            ',' if !quoted => fields.push(String::new()),
            letter => push(&mut fields, letter),
        }
    }
    fields
}

fn push(fields: &mut [String], letter: char) {
    if let Some(last) = fields.last_mut() {
        last.push(letter);
    }
}

/// As Go's `%q` writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl Invocation {
    /// Whether the flag was given.
    pub(crate) fn given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    fn flag(&self, name: &str) -> Option<&'static Flag> {
        flags_of(Some(self.row)).into_iter().find(|flag| flag.name == name)
    }

    /// The text of a flag, given or default; empty for one the command does not have.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.given.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.flag(name).map_or("", |flag| flag.default),
        }
    }

    /// The same, `None` when empty.
    pub(crate) fn some(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        match self.given.get(name) {
            Some(values) => values.clone(),
            None => self.flag(name).map(|flag| comma_list(flag.default)).unwrap_or_default(),
        }
    }

    pub(crate) fn duration(&self, name: &str) -> GoDuration {
        self.text(name).parse().unwrap_or_else(|_| GoDuration::from(Duration::ZERO))
    }

    /// The first argument.
    pub(crate) fn name(&self) -> Option<&str> {
        self.args.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn run(text: &str) -> Invocation {
        match parse(&words(text)).expect("it parses") {
            Parsed::Run(invocation) => invocation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_global_flag_may_come_before_the_command_and_a_bool_may_be_switched_off() {
        let got = run("-n apps get ks web -A=false --no-header");
        assert_eq!((got.row.path, got.text("namespace")), ("get kustomizations", "apps"));
        assert_eq!(
            (got.args.as_slice(), got.is("all-namespaces"), got.is("no-header")),
            (&["web".to_owned()][..], false, true)
        );
    }

    #[test]
    fn letters_may_be_joined_and_lists_split() {
        let got = run("get hr -Aw -lapp=x");
        assert!(got.is("all-namespaces") && got.is("watch"));
        assert_eq!(got.text("label-selector"), "app=x");
        let got = run("create hr x --values a.yaml,b.yaml --values=c.yaml");
        assert_eq!(got.list("values"), ["a.yaml", "b.yaml", "c.yaml"]);
    }

    #[test]
    fn a_flag_that_does_not_exist_is_named() {
        let error = parse(&words("get ks --nope")).expect_err("unknown");
        assert_eq!(error.to_string(), "unknown flag: --nope");
        assert_eq!(
            parse(&words("get ks -x")).expect_err("unknown").to_string(),
            "unknown shorthand flag: 'x' in -x"
        );
    }
}
