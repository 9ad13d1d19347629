//! The command tree as data: a row per command, with its flags, defaults and aliases.
//!
//! Flux reads its command line with cobra and pflag, whose rules (`--flag=false`, comma lists, the wording of errors) scripts depend
//! on; `parse` follows them. The same rows also become clap commands, from which completion scripts and man pages are written.

mod about;
mod clap_tree;
mod create;
mod flag;
mod help;
mod inspect;
mod lifecycle;
mod objects;
mod ours;
mod parse;
pub(crate) mod serve;
#[cfg(test)]
mod surface;
mod value;

pub(crate) use about::about;
pub(crate) use clap_tree::command as clap_command;
pub(crate) use flag::Flag;
pub(crate) use help::text as help_text;
pub(crate) use parse::{Invocation, Parsed, distance, parse, quoted};
pub(crate) use value::kind_name_namespace;

/// What a command does with words that are not flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Args {
    /// Takes any number; the command itself says when one is missing.
    Any,
    /// Has subcommands and does nothing by itself.
    Group,
    /// Takes none.
    None,
    /// Takes none, and says so in other words.
    NoArgument,
    Exactly(usize),
    AtMost(usize),
}

/// One command.
#[derive(Debug)]
pub(crate) struct Row {
    /// `get sources git`
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    /// Other names for the last word of the path.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) args: Args,
    /// Flags of this command alone.
    pub(crate) flags: &'static [Flag],
    /// Flags that the commands below it take too.
    pub(crate) persistent: &'static [Flag],
    pub(crate) hidden: bool,
}

const fn row(path: &'static str, about: &'static str) -> Row {
    Row { path, about, aliases: &[], args: Args::Any, flags: &[], persistent: &[], hidden: false }
}

impl Row {
    const fn aliases(mut self, aliases: &'static [&'static str]) -> Row {
        self.aliases = aliases;
        self
    }

    const fn args(mut self, args: Args) -> Row {
        self.args = args;
        self
    }

    const fn flags(mut self, flags: &'static [Flag]) -> Row {
        self.flags = flags;
        self
    }

    const fn persistent(mut self, flags: &'static [Flag]) -> Row {
        self.persistent = flags;
        self
    }

    const fn hidden(mut self) -> Row {
        self.hidden = true;
        self
    }

    /// The last word of the path.
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit(' ').next().unwrap_or_default()
    }

    /// The path without its last word.
    pub(crate) fn parent(&self) -> &'static str {
        self.path.rsplit_once(' ').map_or("", |(parent, _)| parent)
    }
}

/// Flags of every command.
pub(crate) static GLOBAL: &[Flag] = flag::GLOBAL;

/// Every command except the root.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [lifecycle::ROWS, objects::ROWS, create::ROWS, inspect::ROWS, ours::ROWS, serve::rows()]
        .into_iter()
        .flatten()
}

/// Whether upstream does not have it.
fn is_ours(row: &Row) -> bool {
    ours::ROWS.iter().chain(serve::rows()).any(|own| own.path == row.path)
}

/// The command with exactly this path.
pub(crate) fn by_path(path: &str) -> Option<&'static Row> {
    rows().find(|row| row.path == path)
}

/// The commands right below `path`, sorted by name.
pub(crate) fn children(path: &str) -> Vec<&'static Row> {
    let mut found: Vec<_> = rows().filter(|row| row.parent() == path && row.path != path).collect();
    found.sort_by_key(|row| row.name());
    found
}

/// The command that `word` means below `path`.
pub(crate) fn child(path: &str, word: &str) -> Option<&'static Row> {
    children(path).into_iter().find(|row| row.name() == word || row.aliases.contains(&word))
}

/// Every flag a command takes: its own, its parents', the global ones. The nearest wins, as `--token` of `trigger receiver` does.
pub(crate) fn flags_of(row: Option<&'static Row>) -> Vec<&'static Flag> {
    let mut found: Vec<&'static Flag> = Vec::new();
    let mut add = |flags: &'static [Flag]| {
        for flag in flags {
            if !found.iter().any(|known| known.name == flag.name) {
                found.push(flag);
            }
        }
    };
    if let Some(row) = row {
        add(row.flags);
        add(row.persistent);
        let mut parent = row.parent();
        while let Some(above) = by_path(parent) {
            add(above.persistent);
            parent = above.parent();
        }
    }
    add(GLOBAL);
    found
}

/// Why a flag should not be used any more.
pub(crate) fn deprecation(flag: &str) -> &'static str {
    match flag {
        "validation" => {
            "this arg is no longer used, all resources are validated using server-side apply dry-run"
        }
        "private" => "use --visibility instead",
        _ => "it has no effect",
    }
}
