//! What an operator makes of a value. Values are bytes: lengths and offsets count them.

use super::Error;
use super::glob;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Plain,
    Default,
    Length,
    Lower,
    LowerFirst,
    Upper,
    UpperFirst,
    Substring,
    ReplaceFirst,
    ReplaceAll,
    ReplacePrefix,
    ReplaceSuffix,
    TrimShortestPrefix,
    TrimLongestPrefix,
    TrimShortestSuffix,
    TrimLongestSuffix,
}

impl Operator {
    pub(super) fn apply(self, name: &str, value: &[u8], arguments: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
        let text = || String::from_utf8_lossy(value).into_owned();
        let first = arguments.first().map(Vec::as_slice).unwrap_or_default();
        let second = arguments.get(1).map(Vec::as_slice);
        Ok(match self {
            Operator::Plain | Operator::Default if value.is_empty() => arguments.concat(),
            Operator::Plain | Operator::Default => value.to_vec(),
            Operator::Length => value.len().to_string().into_bytes(),
            Operator::Lower => text().to_lowercase().into_bytes(),
            Operator::Upper => text().to_uppercase().into_bytes(),
            Operator::LowerFirst => first_letter(&text(), |c| c.to_lowercase().collect()),
            Operator::UpperFirst => first_letter(&text(), |c| c.to_uppercase().collect()),
            Operator::Substring => substring(name, value, arguments)?,
            Operator::ReplaceFirst => replace(value, first, second.unwrap_or_default(), 1),
            Operator::ReplaceAll => replace(value, first, second.unwrap_or_default(), usize::MAX),
            // Without a second argument these two do nothing, where the others delete.
            Operator::ReplacePrefix => match second {
                Some(with) if value.starts_with(first) => replace(value, first, with, 1),
                _ => value.to_vec(),
            },
            Operator::ReplaceSuffix => match (second, value.strip_suffix(first)) {
                (Some(with), Some(rest)) => [rest, with].concat(),
                _ => value.to_vec(),
            },
            Operator::TrimShortestPrefix => trim(value, first, false),
            Operator::TrimLongestPrefix => trim(value, first, true),
            Operator::TrimShortestSuffix => reversed(&trim(&reversed(value), &reversed(first), false)),
            Operator::TrimLongestSuffix => reversed(&trim(&reversed(value), &reversed(first), true)),
        })
    }
}

fn first_letter(text: &str, change: impl Fn(char) -> String) -> Vec<u8> {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => format!("{}{}", change(first), characters.as_str()).into_bytes(),
        None => Vec::new(),
    }
}

/// `${v:offset}` and `${v:offset:length}`. What is no number gives the whole value back, as bash does.
fn substring(name: &str, value: &[u8], arguments: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let number =
        |index: usize| -> Option<i64> { std::str::from_utf8(arguments.get(index)?).ok()?.parse().ok() };
    let size = value.len() as i64;
    let Some(offset) = number(0) else {
        return Ok(value.to_vec());
    };
    let offset = if offset < 0 { (size + offset).max(0) } else { offset };
    let end = match arguments.len() {
        0 | 1 => size,
        _ => match number(1) {
            Some(length) => offset.saturating_add(length).min(size),
            None => return Ok(value.to_vec()),
        },
    };
    if offset >= size {
        return Ok(Vec::new());
    }
    // Upstream's version panics here.
    let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok()).filter(|(from, to)| from <= to);
    let (from, to) = range.ok_or_else(|| Error::NegativeLength(name.to_owned()))?;
    Ok(value[from..to].to_vec())
}

fn replace(value: &[u8], what: &[u8], with: &[u8], times: usize) -> Vec<u8> {
    let value = String::from_utf8_lossy(value);
    let (what, with) = (String::from_utf8_lossy(what), String::from_utf8_lossy(with));
    value.replacen(&*what, &with, times).into_bytes()
}

/// Removes the longest or shortest start of `value` that the pattern matches. The empty start never counts.
fn trim(value: &[u8], pattern: &[u8], longest: bool) -> Vec<u8> {
    let mut shortest = None;
    for end in (1..=value.len()).rev() {
        match glob::matches(pattern, &value[..end]) {
            Err(glob::BadPattern) => return value.to_vec(),
            Ok(true) if longest => return value[end..].to_vec(),
            Ok(true) => shortest = Some(end),
            Ok(false) => {}
        }
    }
    value[shortest.unwrap_or_default()..].to_vec()
}

/// Back to front by character.
fn reversed(value: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(value).chars().rev().collect::<String>().into_bytes()
}
