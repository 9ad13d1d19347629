//! Two streams: data on stdout, talk on stderr. A reader that goes away is no error.

use std::io::{ErrorKind, Write as _};

use serde_json::Value;

use crate::error::{CliError, fail};

fn say(mark: &str, text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "{mark} {text}");
}

pub(crate) fn action(text: &str) {
    say("►", text);
}

pub(crate) fn generating(text: &str) {
    say("✚", text);
}

pub(crate) fn waiting(text: &str) {
    say("◎", text);
}

pub(crate) fn success(text: &str) {
    say("✔", text);
}

pub(crate) fn failure(text: &str) {
    say("✗", text);
}

pub(crate) fn warning(text: &str) {
    say("⚠️", text);
}

/// What a command returned at last.
pub(crate) fn error(error: &CliError) {
    let text = error.to_string();
    if !text.is_empty() {
        say(error.mark(), &text);
    }
}

/// Talk without a mark, without a newline.
pub(crate) fn plain(text: &str) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Data. When the reader is gone (`flux get all | head -1`), the process ends quietly as others do.
pub(crate) fn data(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(fail!("cannot write to stdout: {error}")),
    }
}

/// `---` and the object, keys sorted, as `flux export` writes it.
pub(crate) fn export(object: &Value) -> Result<(), CliError> {
    data(&format!("---\n{}\n", yaml_text(object)?.trim()))
}

pub(crate) fn yaml_text(value: &Value) -> Result<String, CliError> {
    yaml::to_yaml_sigs(value).map_err(|error| fail!("cannot write YAML: {error}"))
}

/// A table as Flux prints it: cells padded to the column and followed by a tab; the last header cell has a space more and no tab.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).chain([header.len()]).max().unwrap_or_default();
    let header: Vec<String> = header.iter().map(|cell| cell.to_uppercase()).collect();
    let mut width = vec![0; columns];
    for row in rows.iter().chain([&header]) {
        for (at, cell) in row.iter().enumerate() {
            let widest = cell.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            width[at] = width[at].max(widest);
        }
    }
    let mut out = String::new();
    if !header.is_empty() {
        for (at, cell) in header.iter().enumerate() {
            if at + 1 == header.len() {
                out.push_str(&pad(cell, width[at] + 1));
            } else {
                out.push_str(&pad(cell, width[at]));
                out.push('\t');
            }
        }
        out.push('\n');
    }
    for row in rows {
        table_row(&mut out, row, &width);
    }
    out
}

/// A cell of several lines takes several lines of the table.
fn table_row(out: &mut String, row: &[String], width: &[usize]) {
    let cells: Vec<Vec<&str>> = row.iter().map(|cell| cell.split('\n').collect()).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    for line in 0..height {
        for (cell, width) in cells.iter().zip(width) {
            out.push_str(&pad(cell.get(line).copied().unwrap_or_default(), *width));
            out.push('\t');
        }
        out.push('\n');
    }
}

fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// Hexadecimal runs of 40 to 128 characters, the digests, cut to 8.
pub(crate) fn short_digests(text: &str) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, after) = if word == 0 {
            rest.split_at(rest.chars().next().map_or(0, char::len_utf8))
        } else {
            rest.split_at(word)
        };
        let hex = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        out.push_str(if hex && (40..=128).contains(&word.len()) { &word[..8] } else { word });
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn cells_are_padded_and_the_last_header_has_a_space_more() {
        let text = table(&row(&["Name", "Ready"]), &[row(&["podinfo", "True"])]);
        assert_eq!(text, "NAME   \tREADY \npodinfo\tTrue \t\n");
        assert_eq!(table(&[], &[row(&["a", "b"])]), "a\tb\t\n");
    }

    #[test]
    fn digests_are_cut_and_other_words_kept() {
        let digest = "a".repeat(40);
        assert_eq!(short_digests(&format!("main@sha1:{digest}")), "main@sha1:aaaaaaaa");
        assert_eq!(short_digests("tag v1.0 déjà"), "tag v1.0 déjà");
    }
}
