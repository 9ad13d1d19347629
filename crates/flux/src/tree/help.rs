//! What `--help` prints: usage, subcommands, flags with their defaults.

use crate::commands::plugin::Plugin;

use super::flag::Shape;
use super::{Args, Flag, GLOBAL, Row, about, children, flags_of};

/// The help of a command, or of the root.
pub(crate) fn text(row: Option<&'static Row>, plugins: &[Plugin]) -> String {
    let path = row.map_or("", |row| row.path);
    let full = if path.is_empty() { "flux".to_owned() } else { format!("flux {path}") };
    let about = row.map_or(
        "Flux keeps clusters equal to what Git repositories, container registries and Helm charts say.",
        |row| row.about,
    );
    let below: Vec<_> = children(path).into_iter().filter(|row| !row.hidden).collect();
    let mut out = format!("{about}\n\nUsage:\n");
    if row.is_some_and(|row| row.args != Args::Group) {
        out.push_str(&format!("  {full} {}[flags]\n", arguments(row)));
    }
    if !below.is_empty() {
        out.push_str(&format!("  {full} [command]\n"));
    }
    if let Some(row) = row.filter(|row| !row.aliases.is_empty()) {
        out.push_str(&format!("\nAliases:\n  {}, {}\n", row.name(), row.aliases.join(", ")));
    }
    if !below.is_empty() {
        out.push_str("\nAvailable Commands:\n");
        let width = below.iter().map(|row| row.name().len()).max().unwrap_or_default().max(11);
        for row in &below {
            out.push_str(&format!("  {:width$} {}\n", row.name(), row.about));
        }
    }
    if row.is_none() && !plugins.is_empty() {
        out.push_str("\nPlugin Commands:\n");
        let width = plugins.iter().map(|plugin| plugin.name.len()).max().unwrap_or_default().max(11);
        for Plugin { name, .. } in plugins {
            out.push_str(&format!("  {name:width$} Runs the {name} plugin\n"));
        }
    }
    out.push_str(&flags(row));
    if !below.is_empty() {
        out.push_str(&format!("\nUse \"{full} [command] --help\" for more information about a command.\n"));
    }
    out
}

fn arguments(row: Option<&Row>) -> &'static str {
    match row.map(|row| row.args) {
        Some(Args::Any | Args::AtMost(_)) => "[name] ",
        Some(Args::Exactly(_)) => "<name> ",
        Some(Args::Group | Args::None | Args::NoArgument) | None => "",
    }
}

fn flags(row: Option<&'static Row>) -> String {
    let (mut own, mut global) = (Vec::new(), Vec::new());
    for flag in flags_of(row) {
        if flag.hidden {
            continue;
        }
        let is_global = GLOBAL.iter().any(|known| std::ptr::eq(known, flag));
        if is_global && row.is_some() { global.push(line(row, flag)) } else { own.push(line(row, flag)) }
    }
    own.push(("  -h, --help".to_owned(), "show this help".to_owned()));
    if row.is_none() {
        own.push(("  -v, --version".to_owned(), "show the version".to_owned()));
    }
    let mut out = String::new();
    for (title, mut lines) in [("Flags", own), ("Global Flags", global)] {
        if lines.is_empty() {
            continue;
        }
        lines.sort_by(|one, other| {
            one.0.trim_start_matches([' ', '-']).cmp(other.0.trim_start_matches([' ', '-']))
        });
        let width = lines.iter().map(|(flag, _)| flag.len()).max().unwrap_or_default();
        out.push_str(&format!("\n{title}:\n"));
        for (flag, about) in lines {
            out.push_str(format!("{flag:width$}   {about}").trim_end());
            out.push('\n');
        }
    }
    out
}

fn line(row: Option<&Row>, flag: &Flag) -> (String, String) {
    let short = flag.short.map_or("      ".to_owned(), |letter| format!("  -{letter}, "));
    let kind = match flag.value_name() {
        "" => String::new(),
        name => format!(" {name}"),
    };
    let default = match (flag.shape, flag.default) {
        (_, "" | "false" | "0s") => String::new(),
        (Shape::List, default) => format!("(default [{default}])"),
        (Shape::Text | Shape::Checked(_), default) => format!("(default \"{default}\")"),
        (_, default) => format!("(default {default})"),
    };
    let about = about(row.map_or("", |row| row.path), flag.name);
    (format!("{short}--{}{kind}", flag.name), format!("{about} {default}").trim().to_owned())
}
