//! The same rows as clap commands: what completion scripts and man pages are written from.

use clap::{Arg, ArgAction, Command};

use super::{Args, Flag, Row, about, children, flags_of};

/// The whole tree.
pub(crate) fn command() -> Command {
    let root = Command::new("flux")
        .version(crate::commands::version::CLIENT)
        .about(
            "Flux keeps clusters equal to what Git repositories, container registries and Helm charts say.",
        )
        .disable_help_subcommand(true);
    let root = flags_of(None).into_iter().fold(root, |root, flag| root.arg(argument("", flag)));
    children("").into_iter().fold(root, |root, row| root.subcommand(below(row)))
}

fn below(row: &'static Row) -> Command {
    let command = Command::new(row.name())
        .about(row.about)
        .visible_aliases(row.aliases.iter().copied().filter(|alias| *alias != row.name()))
        .hide(row.hidden)
        .disable_help_subcommand(true)
        .disable_version_flag(true);
    let command =
        flags_of(Some(row)).into_iter().fold(command, |command, flag| command.arg(argument(row.path, flag)));
    let command = match row.args {
        Args::Group | Args::None | Args::NoArgument => command,
        Args::Any | Args::Exactly(_) | Args::AtMost(_) => command.arg(Arg::new("NAME").num_args(0..)),
    };
    children(row.path).into_iter().fold(command, |command, row| command.subcommand(below(row)))
}

fn argument(path: &str, flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).hide(flag.hidden).help(about(path, flag.name));
    let argument = match flag.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    let argument = if flag.is_bool() {
        argument.num_args(0..=1).require_equals(true).default_missing_value("true").action(ArgAction::Set)
    } else {
        argument.num_args(1).action(ArgAction::Append)
    };
    if flag.default.is_empty() { argument } else { argument.default_value(flag.default) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_sound() {
        super::command().debug_assert();
    }
}
