//! `flux reference`: pages about the commands and kinds, written from the same rows and types that the program runs on.
//!
//! `flux reference markdown FOLDER` writes what lies in docs/reference, `flux reference man FOLDER` man pages for a
//! package. Hidden: it is for those who build this, and `cargo xtask docs` calls it.

mod kinds;
mod man;

use std::fmt::Write as _;
use std::path::Path;

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::{self, Invocation, Row};

/// Name and contents of a page.
type Page = (String, String);

pub(super) fn run(run: &Invocation) -> Result<(), CliError> {
    let folder = super::required_name(run, "folder")?;
    let pages = match run.row.name() {
        "man" => man::pages(),
        _ => markdown(),
    };
    write(folder.as_ref(), &pages).map_err(|error| fail!("{folder}: {error}"))?;
    output::success(&format!("wrote {} pages to {folder}", pages.len()));
    Ok(())
}

fn write(folder: &Path, pages: &[Page]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    pages.iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
}

/// A page for all commands, and one for each kind.
fn markdown() -> Vec<Page> {
    let mut pages = vec![("commands.md".to_owned(), commands())];
    pages.extend(flux_api::kinds::ALL.iter().map(|kind| (format!("{}.md", kind.kind), kinds::page(kind))));
    pages
}

/// The commands that people see, in the order of their paths.
fn visible() -> Vec<&'static Row> {
    let is_hidden = |row: &Row| {
        let mut path = row.path;
        while let Some(above) = tree::by_path(path) {
            if above.hidden {
                return true;
            }
            path = above.parent();
        }
        false
    };
    let mut rows: Vec<_> = tree::rows().filter(|row| !is_hidden(row)).collect();
    rows.sort_by_key(|row| row.path);
    rows.dedup_by_key(|row| row.path);
    rows
}

fn commands() -> String {
    let mut page = "# Commands\n\nWritten by `cargo xtask docs` from the program's own table; a test keeps it true. `flux COMMAND --help` says the \
                    same.\n\n## Flags of every command\n\n"
        .to_owned();
    page.push_str(&flags("", tree::GLOBAL.iter()));
    for row in visible() {
        let depth = if row.parent().is_empty() { "##" } else { "###" };
        let _ = writeln!(page, "\n{depth} `flux {}`\n\n{}.", row.path, row.about.trim_end_matches('.'));
        if !row.aliases.is_empty() {
            let names: Vec<String> = row.aliases.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(page, "\nAlso {}.", names.join(", "));
        }
        let own = flags(row.path, row.flags.iter().chain(row.persistent));
        if !own.is_empty() {
            let _ = write!(page, "\n{own}");
        }
    }
    page
}

fn flags<'a>(path: &str, all: impl Iterator<Item = &'a tree::Flag>) -> String {
    let mut lines = String::new();
    for flag in all.filter(|flag| !flag.hidden) {
        let short = flag.short.map_or(String::new(), |letter| format!("`-{letter}`, "));
        let default = match flag.default {
            "" | "false" | "0s" => String::new(),
            default => format!(" (default `{default}`)"),
        };
        let deprecated = if flag.deprecated { ", deprecated" } else { "" };
        let name = format!("`--{}` {}", flag.name, flag.value_name());
        let about = tree::about(path, flag.name);
        let _ = writeln!(lines, "- {short}{}: {about}{default}{deprecated}", name.trim_end());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask docs` writes them again.
    #[test]
    fn the_reference_pages_are_fresh() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"));
        for (name, text) in markdown() {
            let written = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(written == text, "docs/reference/{name} is old: run `cargo xtask docs`");
        }
        let known: Vec<String> = markdown().into_iter().map(|(name, _)| name).collect();
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            assert!(known.contains(&name), "docs/reference/{name} is about nothing: remove it");
        }
    }

    #[test]
    fn every_visible_command_has_a_section_and_hidden_ones_have_none() {
        let page = commands();
        for row in visible() {
            assert!(page.contains(&format!(" `flux {}`\n", row.path)), "{}", row.path);
        }
        assert!(!page.contains("`flux reference"), "it is hidden");
    }
}
