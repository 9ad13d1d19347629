//! The JSON paths of printer columns: fields, list positions, and filters like `[?(@.type=="Ready")]`.
//!
//! Only the subset CRDs may use there.

use serde_json::Value;

/// Everything the path leads to.
pub fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut current = vec![object];
    let mut rest = path.trim();
    rest = rest.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(rest);
    while !rest.is_empty() {
        let (step, left) = next_step(rest);
        rest = left;
        current = current.into_iter().flat_map(|value| follow(value, &step)).collect();
    }
    current
}

enum Step {
    Field(String),
    Index(i64),
    All,
    Where { field: String, equal: bool, value: String },
    Nothing,
}

fn next_step(path: &str) -> (Step, &str) {
    if let Some(inner) = path.strip_prefix('[') {
        let end = closing(inner);
        let (inside, rest) = (&inner[..end], inner.get(end + 1..).unwrap_or_default());
        return (bracket(inside), rest);
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let mut name = String::new();
    let mut chars = path.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            // A dot inside a name is escaped.
            '\\' => {
                if let Some((_, escaped)) = chars.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => return (field(name), &path[at..]),
            _ => name.push(c),
        }
    }
    (field(name), "")
}

fn field(name: String) -> Step {
    match name.as_str() {
        "" => Step::Nothing,
        "*" => Step::All,
        _ => Step::Field(name),
    }
}

/// Where the bracket that was opened closes, quotes respected.
fn closing(inner: &str) -> usize {
    let mut quote = None;
    for (at, c) in inner.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ']') => return at,
            _ => {}
        }
    }
    inner.len()
}

fn bracket(inside: &str) -> Step {
    let inside = inside.trim();
    if inside == "*" {
        return Step::All;
    }
    if let Ok(index) = inside.parse() {
        return Step::Index(index);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter(condition);
    }
    Step::Field(unquoted(inside).to_owned())
}

fn filter(condition: &str) -> Step {
    let (left, right, equal) = match (condition.split_once("=="), condition.split_once("!=")) {
        (Some((left, right)), _) => (left, right, true),
        (None, Some((left, right))) => (left, right, false),
        (None, None) => return Step::Nothing,
    };
    let field = left.trim().trim_start_matches('@').trim_start_matches('.').to_owned();
    Step::Where { field, equal, value: unquoted(right.trim()).to_owned() }
}

fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn follow<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
        (Step::Index(index), Value::Array(items)) => {
            let at = if *index < 0 { index + items.len() as i64 } else { *index };
            usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
        }
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::All, Value::Object(fields)) => fields.values().collect(),
        (Step::Where { field, equal, value }, Value::Array(items)) => {
            let matches = |item: &&Value| {
                let found = find(item, &format!(".{field}"));
                let text = found.first().map(|found| super::cell_text(found)).unwrap_or_default();
                (text == *value) == *equal
            };
            items.iter().filter(matches).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn printer_columns_find_what_crds_point_at() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } }, "spec": { "list": [1, 2, 3], "name": "n" },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] },
        });
        let one = |path: &str| find(&object, path).into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(one(".spec.name"), [json!("n")]);
        assert_eq!(one(".spec.list[1]"), [json!(2)]);
        assert_eq!(one(".spec.list[-1]"), [json!(3)]);
        assert_eq!(one(".spec.list[*]").len(), 3);
        assert_eq!(one(r#".status.conditions[?(@.type=="Ready")].status"#), [json!("True")]);
        assert_eq!(one(r".metadata.annotations.a\.b/c"), [json!("x")]);
        assert!(one(".spec.none.deep").is_empty() && one("[?(").is_empty());
    }
}
