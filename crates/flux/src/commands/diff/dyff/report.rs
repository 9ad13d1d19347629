//! Differences as text: a path, then what happened there, side by side where the screen is wide enough.

use serde_json::Value;

use super::compare::{Detail, Difference, Entries, compare, kind_of, scalar};
use super::lines::{Change, changes};
use super::neat;

/// The width of a screen that nobody asked about.
const WIDTH: usize = 80;
const BETWEEN: &str = "   ";

/// Everything that differs between two objects, with an empty line at the end.
pub(in crate::commands) fn report(from: &Value, to: &Value) -> String {
    let mut out = String::new();
    for difference in compare(&[], from, to) {
        out.push_str(&one(&difference));
    }
    out.push('\n');
    out
}

fn one(difference: &Difference) -> String {
    let path = if difference.path.is_empty() { "(root level)".to_owned() } else { difference.path.join(".") };
    let blocks: Vec<String> = difference.details.iter().map(detail).collect();
    format!("\n{path}\n{}", side_by_side(0, &blocks))
}

fn detail(detail: &Detail) -> String {
    match detail {
        Detail::Added(entries) => {
            format!("+ {} added:\n{}", counted(entries), side_by_side(2, &[neat::entries(entries)]))
        }
        Detail::Removed(entries) => {
            format!("- {} removed:\n{}", counted(entries), side_by_side(0, &[neat::entries(entries)]))
        }
        Detail::Reordered(from, to) => reordered(from, to),
        Detail::Changed(Value::String(from), Value::String(to)) => text_change(from, to),
        Detail::Changed(from, to) => {
            let (from_kind, to_kind) = (kind_of(from), kind_of(to));
            let what = if from_kind == to_kind {
                "value change".to_owned()
            } else {
                format!("type change from {from_kind} to {to_kind}")
            };
            let shown = |value: &Value| neat::value(value).trim_end_matches('\n').to_owned();
            format!("± {what}\n{}{}", hanging("- ", &shown(from)), hanging("+ ", &shown(to)))
        }
    }
}

fn counted(entries: &Entries) -> String {
    match entries {
        Entries::Map(fields) => plural(fields.len(), "map entry", "map entries"),
        Entries::List(items) => plural(items.len(), "list entry", "list entries"),
    }
}

/// `one line`, `two lines`, `13 lines`.
fn plural(amount: usize, one: &str, many: &str) -> String {
    const WORDS: [&str; 13] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    let number = WORDS.get(amount).map_or_else(|| amount.to_string(), |word| (*word).to_owned());
    format!("{number} {}", if amount == 1 { one } else { many })
}

fn reordered(from: &[Value], to: &[Value]) -> String {
    let texts = |list: &[Value]| -> Vec<String> {
        let text = |value: &Value| match scalar(value) {
            text if text.is_empty() => neat::value(value),
            text => text,
        };
        list.iter().map(text).collect()
    };
    let (from, to) = (texts(from), texts(to));
    let length = |list: &[String]| {
        list.iter().map(|text| text.chars().count()).sum::<usize>() + list.len().saturating_sub(1) * 2
    };
    if length(&from).max(length(&to)) < WIDTH / 2 {
        return format!("⇆ order changed\n- {}\n+ {}\n", from.join(", "), to.join(", "));
    }
    format!("⇆ order changed\n{}", table(" ", 2, &[from.join("\n"), to.join("\n")]))
}

fn text_change(from: &str, to: &str) -> String {
    let trimmed = |text: &str| text.trim_matches([' ', '\n']).to_owned();
    if trimmed(from) == trimmed(to) {
        let shown = |text: &str| text.replace('\n', "↵\n").replace(' ', "·");
        let blocks = [hanging("- ", &shown(from)), hanging("+ ", &shown(to))];
        return format!("± whitespace only change\n{}", side_by_side(0, &blocks));
    }
    if from.contains('\n') || to.contains('\n') {
        return lines_change(from, to);
    }
    format!("± value change\n{}{}", hanging("- ", from), hanging("+ ", to))
}

fn lines_change(from: &str, to: &str) -> String {
    let changes = changes(from, to);
    let count = |wanted: Change| changes.iter().filter(|(change, _)| *change == wanted).count();
    let inserts = plural(count(Change::Insert), "insert", "inserts");
    let deletions = plural(count(Change::Delete), "deletion", "deletions");
    let mut out = format!("± value change in multiline text ({inserts}, {deletions})\n");
    for (change, text) in &changes {
        let mark = if *change == Change::Insert { "+ " } else { "- " };
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            out.push_str(&format!("{mark}{line}\n"));
        }
    }
    out.push('\n');
    out
}

/// The mark before the first line, as much space before the others.
fn hanging(mark: &str, text: &str) -> String {
    let lines = text.split('\n').enumerate();
    lines.map(|(at, line)| format!("{}{line}\n", if at == 0 { mark } else { "  " })).collect()
}

/// Blocks as columns, or one below the other where the screen is too narrow.
fn side_by_side(indent: usize, blocks: &[String]) -> String {
    let widest = |block: &String| block.split('\n').map(|line| line.chars().count()).max().unwrap_or(0);
    let between = blocks.len().saturating_sub(1) * BETWEEN.len();
    if indent + between + blocks.iter().map(widest).sum::<usize>() <= WIDTH {
        return table(BETWEEN, indent, blocks);
    }
    let space = " ".repeat(indent);
    blocks.iter().flat_map(|block| block.split('\n')).map(|line| format!("{space}{line}\n")).collect()
}

fn table(between: &str, indent: usize, columns: &[String]) -> String {
    let columns: Vec<Vec<&str>> = columns.iter().map(|column| column.split('\n').collect()).collect();
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let space = " ".repeat(indent);
    let mut lines = Vec::with_capacity(rows);
    for row in 0..rows {
        let mut cells = Vec::with_capacity(columns.len());
        for column in &columns {
            let width = column.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            let cell = column.get(row).copied().unwrap_or_default();
            let missing = width - cell.chars().count();
            cells.push(format!("{space}{cell}{}", " ".repeat(missing)));
        }
        lines.push(cells.join(between).trim_end_matches(' ').to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_is_matched_by_names() {
        let port = |number: i64| json!({"spec": {"ports": [{"name": "http", "port": number}, {"name": "grpc", "port": 1}]}});
        assert_eq!(
            report(&port(9899), &port(9898)),
            "\nspec.ports.http.port\n± value change\n- 9899\n+ 9898\n\n"
        );
    }

    #[test]
    fn what_was_removed_and_added_stands_side_by_side() {
        let got = report(&json!({"data": {"username1": "*****"}}), &json!({"data": {"username": "*****"}}));
        let want = "\ndata\n- one map entry removed:   + one map entry added:\nusername1: \"*****\"           username: \"*****\"\n\n";
        assert_eq!(got, want);
    }

    #[test]
    fn order_type_and_lines_are_told_in_their_own_words() {
        let got = report(&json!({"a": ["x", "y", 1]}), &json!({"a": ["y", "x", 1]}));
        assert_eq!(got, "\na\n⇆ order changed\n- x, y, 1\n+ y, x, 1\n\n");
        let got = report(&json!({"a": "1"}), &json!({"a": 1}));
        assert_eq!(got, "\na\n± type change from string to int\n- 1\n+ 1\n\n");
        let got = report(&json!({"a": "x\ny\n"}), &json!({"a": "x\nz\n"}));
        let want = "\na\n± value change in multiline text (one insert, one deletion)\n- y\n+ z\n\n\n";
        assert_eq!(got, want);
    }
}
