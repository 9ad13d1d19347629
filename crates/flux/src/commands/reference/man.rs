//! Man pages: one for `flux`, one for each command. Pure; roff as `man(7)` has it.

use std::fmt::Write as _;

use super::{Page, visible};
use crate::commands::version::CLIENT;
use crate::tree::{self, Flag, Row};

pub(super) fn pages() -> Vec<Page> {
    let mut pages = vec![("flux.1".to_owned(), root())];
    pages.extend(visible().into_iter().map(|row| (format!("{}.1", dashed(row)), page(row))));
    pages
}

fn dashed(row: &Row) -> String {
    format!("flux-{}", row.path.replace(' ', "-"))
}

fn root() -> String {
    let mut page = head("flux", "keep clusters equal to what Git repositories, registries and charts say");
    page.push_str(".SH SYNOPSIS\n.B flux\n.I command\n[flags]\n");
    section(&mut page, "COMMANDS");
    for row in visible().into_iter().filter(|row| row.parent().is_empty()) {
        let _ = write!(page, ".TP\n.BR {} (1)\n{}\n", escaped(&dashed(row)), escaped(row.about));
    }
    options(&mut page, "", "OPTIONS OF EVERY COMMAND", tree::GLOBAL.iter());
    section(&mut page, "EXIT STATUS");
    page.push_str("0 when it worked, 1 when it did not; \\fBflux test\\fR and \\fBflux diff\\fR say more in their pages.\n");
    page
}

fn page(row: &'static Row) -> String {
    let mut page = head(&dashed(row), row.about);
    let _ = write!(page, ".SH SYNOPSIS\n.B flux {}\n[arguments] [flags]\n", escaped(row.path));
    if !row.aliases.is_empty() {
        section(&mut page, "ALIASES");
        let _ = writeln!(page, "{}", escaped(&row.aliases.join(", ")));
    }
    let below = tree::children(row.path);
    let mut below = below.into_iter().filter(|row| !row.hidden).peekable();
    if below.peek().is_some() {
        section(&mut page, "COMMANDS");
        for row in below {
            let _ = write!(page, ".TP\n.BR {} (1)\n{}\n", escaped(&dashed(row)), escaped(row.about));
        }
    }
    options(&mut page, row.path, "OPTIONS", row.flags.iter().chain(row.persistent));
    section(&mut page, "SEE ALSO");
    let above = tree::by_path(row.parent()).map_or("flux".to_owned(), dashed);
    let _ = writeln!(page, ".BR {} (1)", escaped(&above));
    page
}

fn head(name: &str, about: &str) -> String {
    let (title, name) = (escaped(&name.to_uppercase()), escaped(name));
    format!(".TH \"{title}\" 1 \"\" \"flux {CLIENT}\" \"Flux\"\n.SH NAME\n{name} \\- {}\n", escaped(about))
}

fn section(page: &mut String, title: &str) {
    let _ = writeln!(page, ".SH {title}");
}

fn options<'a>(page: &mut String, path: &str, title: &str, flags: impl Iterator<Item = &'a Flag>) {
    let mut flags = flags.filter(|flag| !flag.hidden).peekable();
    if flags.peek().is_none() {
        return;
    }
    section(page, title);
    for flag in flags {
        let short = flag.short.map_or(String::new(), |letter| format!("\\-{letter}, "));
        let default = match flag.default {
            "" | "false" | "0s" => String::new(),
            default => format!(" (default {})", escaped(default)),
        };
        let _ = write!(
            page,
            ".TP\n{short}\\fB\\-\\-{}\\fR \\fI{}\\fR\n{}{default}\n",
            escaped(flag.name),
            escaped(flag.value_name()),
            escaped(tree::about(path, flag.name))
        );
    }
}

/// What roff would read as its own: backslashes, hyphens, a dot or quote at the beginning of a line.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_flags() {
        let pages = pages();
        assert!(pages.len() > 150, "{}", pages.len());
        let find = |name: &str| &pages.iter().find(|(page, _)| page == name).expect("it is there").1;
        let page = find("flux-reconcile-kustomization.1");
        assert!(page.starts_with(".TH \"FLUX\\-RECONCILE\\-KUSTOMIZATION\" 1"), "{page}");
        assert!(page.contains("\\fB\\-\\-with\\-source\\fR"), "{page}");
        assert!(find("flux.1").contains(".BR flux\\-up (1)"));
        assert!(
            pages.iter().all(|(_, text)| text.lines().all(|line| !line.is_empty())),
            "roff has no empty lines"
        );
    }

    #[test]
    fn what_roff_would_read_as_its_own_is_escaped() {
        assert_eq!(escaped(".git\\x-y"), "\\&.git\\ex\\-y");
    }
}
