//! One file: finds the markers in it and writes what they stand for. Every other byte stays: comments, quotes,
//! anchors, line ends, the order and the spaces of everything.

use std::ops::Range;

use yaml::{Document, Node, Options, Schema, Value, parse_stream, string_edit};

use super::marker::{self, Read};
use super::{Change, ObjectId, Setters};

/// Beyond this many, the rest of a file's problems is not told.
const MOST_PROBLEMS: usize = 20;

/// A file after its markers were followed.
#[derive(Debug, Default)]
pub struct Edited {
    /// The new contents, where they differ.
    pub bytes: Option<Vec<u8>>,
    pub changes: Vec<(ObjectId, Change)>,
    pub problems: Vec<Problem>,
}

/// Something in a file that was meant to be a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1; 0 where it is not known.
    pub line: u32,
    pub problem: String,
}

impl Problem {
    /// With the place, as compilers write it.
    pub fn at(&self, file: &str) -> String {
        match self.line {
            0 => format!("{file}: {}", self.problem),
            line => format!("{file}:{line}: {}", self.problem),
        }
    }
}

/// Follows the markers in `source`. A file that is no YAML is left alone and the reason told, as are malformed
/// markers.
pub fn edit(source: &[u8], setters: &Setters) -> Edited {
    let mut options = Options::new(Schema::V3);
    options.comments = true;
    let documents = match parse_stream(source, &options) {
        Ok(documents) => documents,
        Err(error) => {
            let problem =
                Problem { line: error.line.unwrap_or_default(), problem: error.message().to_owned() };
            return Edited { problems: vec![problem], ..Edited::default() };
        }
    };
    let mut walk = Walk { source, setters, edits: Vec::new(), changes: Vec::new(), problems: Vec::new() };
    for (object, node) in objects(&documents) {
        walk.value(node, &object);
    }
    let bytes = (!walk.edits.is_empty()).then(|| spliced(source, walk.edits));
    walk.problems.truncate(MOST_PROBLEMS);
    Edited { bytes, changes: walk.changes, problems: walk.problems }
}

/// The objects of a file. A list that is all there is in it is taken apart, as kyaml does.
fn objects(documents: &[Document]) -> Vec<(ObjectId, &Node)> {
    let mut found = Vec::new();
    for document in documents {
        let root = &document.root;
        let is_list = matches!(root.get("kind").and_then(Node::text), Some("List" | "ResourceList"));
        let items = root.get("items").and_then(Node::as_sequence).filter(|_| is_list && documents.len() == 1);
        match items {
            Some(items) => found.extend(items.items.iter().map(|item| (identify(item), item))),
            None => found.push((identify(root), root)),
        }
    }
    found
}

fn identify(object: &Node) -> ObjectId {
    let text = |path: &[&str]| object.get_path(path).and_then(Node::text).unwrap_or_default().to_owned();
    ObjectId {
        api_version: text(&["apiVersion"]),
        kind: text(&["kind"]),
        name: text(&["metadata", "name"]),
        namespace: text(&["metadata", "namespace"]),
    }
}

struct Walk<'a> {
    source: &'a [u8],
    setters: &'a Setters,
    edits: Vec<(Range<usize>, Vec<u8>)>,
    changes: Vec<(ObjectId, Change)>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    // The parser limits the depth.
    fn value(&mut self, node: &Node, object: &ObjectId) {
        match &node.value {
            Value::Scalar(_) => self.scalar(node, object),
            // What an alias means is written where its anchor is.
            Value::Alias(_) => self.misplaced(node, "an alias; mark the value that has the anchor"),
            Value::Sequence(sequence) => {
                self.misplaced(node, "a list; mark its entries");
                sequence.items.iter().for_each(|item| self.value(item, object));
            }
            Value::Mapping(mapping) => {
                self.misplaced(node, "a mapping; mark the value itself");
                for (key, value) in mapping.iter() {
                    self.misplaced(key, "a key; put the marker at the end of the value's line");
                    self.value(value, object);
                }
            }
        }
    }

    fn scalar(&mut self, node: &Node, object: &ObjectId) {
        let Some(comments) = node.comments() else { return };
        let name = match marker::read(&comments.line, &comments.head) {
            Read::Marker(name) => name,
            Read::Comment => return,
            Read::Malformed(problem) => return self.problem(node, problem),
        };
        let old = node.text().unwrap_or_default();
        let Some(new) = self.setters.value(&name).filter(|new| *new != old) else { return };
        match string_edit(self.source, node, new) {
            Ok(edit) => {
                let change = Change { old_value: old.to_owned(), new_value: new.to_owned(), setter: name };
                self.edits.push(edit);
                self.changes.push((object.clone(), change));
            }
            Err(error) => self.problem(node, error.message().to_owned()),
        }
    }

    fn misplaced(&mut self, node: &Node, place: &str) {
        let Some(comments) = node.comments() else { return };
        if [&comments.head, &comments.line].iter().any(|comment| marker::is_misplaced(comment)) {
            self.problem(node, format!("the marker has no effect on {place}"));
        }
    }

    fn problem(&mut self, node: &Node, problem: String) {
        self.problems.push(Problem { line: node.position().line, problem });
    }
}

/// Edits do not overlap: each is one scalar.
fn spliced(source: &[u8], mut edits: Vec<(Range<usize>, Vec<u8>)>) -> Vec<u8> {
    edits.sort_by_key(|(span, _)| span.start);
    let mut bytes = Vec::with_capacity(source.len() + 64);
    let mut at = 0;
    for (span, written) in edits {
        bytes.extend_from_slice(&source[at..span.start]);
        bytes.extend_from_slice(&written);
        at = span.end;
    }
    bytes.extend_from_slice(&source[at..]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::image::ImageReference;
    use std::collections::BTreeMap;

    const DIGEST: &str = "sha256:6745aaad46d795c9836632e1fb62f24b7e7f4c843144da8e47a5465c411a14be";

    fn setters() -> Setters {
        let image = |name: &str, tag: &str, digest: Option<&str>| ImageReference {
            name: name.into(),
            tag: tag.into(),
            digest: digest.map(str::to_owned),
        };
        let policies = BTreeMap::from([
            ("app".to_owned(), image("ghcr.io/org/app", "v2.0.0", None)),
            ("pinned".to_owned(), image("nginx", "1.27", Some(DIGEST))),
        ]);
        Setters::new("flux", &policies).unwrap()
    }

    /// `@x@` stands for a marker of the policy `x`.
    fn marked(text: &str) -> String {
        let mut out = String::new();
        for (index, part) in text.split('@').enumerate() {
            match index % 2 {
                0 => out.push_str(part),
                _ => out.push_str(&format!("# {{\"$imagepolicy\": \"flux:{part}\"}}")),
            }
        }
        out
    }

    fn edited(text: &str) -> String {
        let text = marked(text);
        let edited = edit(text.as_bytes(), &setters());
        assert_eq!(edited.problems, [], "{text}");
        String::from_utf8(edited.bytes.unwrap_or_else(|| text.clone().into_bytes())).unwrap()
    }

    #[test]
    fn only_the_marked_value_changes() {
        let cases = [
            // What each part of a marker stands for.
            ("image: ghcr.io/org/app:v1 @app@\n", "image: ghcr.io/org/app:v2.0.0 @app@\n"),
            ("tag: v1 @app:tag@\n", "tag: v2.0.0 @app:tag@\n"),
            ("name: x @app:name@\n", "name: ghcr.io/org/app @app:name@\n"),
            ("digest: sha256:1 @app:digest@\n", "digest: \"\" @app:digest@\n"),
            ("digest: x @pinned:digest@\n", &format!("digest: {} @pinned:digest@\n", DIGEST)),
            // Numbers stay texts.
            ("tag: 1.26 @pinned:tag@\n", "tag: \"1.27\" @pinned:tag@\n"),
            ("tag: '1.26' @pinned:tag@\n", "tag: '1.27' @pinned:tag@\n"),
            ("tag: \"1.26\" @pinned:tag@\n", "tag: \"1.27\" @pinned:tag@\n"),
            ("tag: ~ @app:tag@\n", "tag: v2.0.0 @app:tag@\n"),
            ("tag: !!str v1 @app:tag@\n", "tag: !!str v2.0.0 @app:tag@\n"),
            // Spaces, comments, keys nobody would write like this.
            ("a:   v1    @app:tag@  \n# end\n\n\n", "a:   v2.0.0    @app:tag@  \n# end\n\n\n"),
            ("# top\n\"quoted key\"  :\tv1 @app:tag@\n", "# top\n\"quoted key\"  :\tv2.0.0 @app:tag@\n"),
            ("? a\n: v1 @app:tag@\n", "? a\n: v2.0.0 @app:tag@\n"),
            // Lists: on the line, or above the entry.
            ("args:\n- v1 @app:tag@\n-   v1 # other\n", "args:\n- v2.0.0 @app:tag@\n-   v1 # other\n"),
            ("args:\n  @app:tag@\n  - v1\n", "args:\n  @app:tag@\n  - v2.0.0\n"),
            ("a:\n    - b: v1 @app:tag@\n      c: 1\n", "a:\n    - b: v2.0.0 @app:tag@\n      c: 1\n"),
            // Flow style.
            (
                "a: {b: [v1, x], c: v1} # no\nd: [\n  v1, @app:tag@\n  v1\n]\n",
                "a: {b: [v1, x], c: v1} # no\nd: [\n  v2.0.0, @app:tag@\n  v1\n]\n",
            ),
            ("a: {\n  b: v1, @app:tag@\n  c: v1\n}\n", "a: {\n  b: v2.0.0, @app:tag@\n  c: v1\n}\n"),
            // Anchors and aliases.
            (
                "a: &tag v1 @app:tag@\nb: *tag\n<<: &m {x: 1}\n",
                "a: &tag v2.0.0 @app:tag@\nb: *tag\n<<: &m {x: 1}\n",
            ),
            // Line ends, the last line, marks of order.
            ("a: v1 @app:tag@\r\nb: 2\r\n", "a: v2.0.0 @app:tag@\r\nb: 2\r\n"),
            ("a: v1 @app:tag@", "a: v2.0.0 @app:tag@"),
            ("\u{feff}a: v1 @app:tag@\n", "\u{feff}a: v2.0.0 @app:tag@\n"),
            // Several documents.
            (
                "---\na: v1 @app:tag@\n---\n# only a comment\n---\nb: v1\n...\n---\nc: v1 @app:tag@\n",
                "---\na: v2.0.0 @app:tag@\n---\n# only a comment\n---\nb: v1\n...\n---\nc: v2.0.0 @app:tag@\n",
            ),
            // A text that holds YAML is a text.
            (
                "data:\n  values.yaml: |\n    image: v1 @app:tag@\n  x: v1 @app:tag@\n",
                "data:\n  values.yaml: |\n    image: v1 @app:tag@\n  x: v2.0.0 @app:tag@\n",
            ),
            ("a: 'x @app:tag@'\n", "a: 'x @app:tag@'\n"),
            // Helm values: a file without any object, and inside of a HelmRelease.
            (
                "web:\n  image:\n    repository: x @app:name@\n    tag: v1 @app:tag@\n    digest: a @pinned:digest@\n",
                &format!(
                    "web:\n  image:\n    repository: ghcr.io/org/app @app:name@\n    tag: v2.0.0 @app:tag@\n    digest: {DIGEST} @pinned:digest@\n"
                ),
            ),
            (
                "kind: HelmRelease\nspec:\n  values:\n    images:\n    - {name: a, tag: v1} # plain\n    - name: b\n      tag: v1 @app:tag@\n",
                "kind: HelmRelease\nspec:\n  values:\n    images:\n    - {name: a, tag: v1} # plain\n    - name: b\n      tag: v2.0.0 @app:tag@\n",
            ),
            // Folded and quoted texts that hold YAML, and a ConfigMap's keys beside them.
            (
                "data:\n  a.yaml: >-\n    tag: v1 @app:tag@\n  b.yaml: \"tag: v1 # {}\\n\"\n  tag: v1 @app:tag@\n",
                "data:\n  a.yaml: >-\n    tag: v1 @app:tag@\n  b.yaml: \"tag: v1 # {}\\n\"\n  tag: v2.0.0 @app:tag@\n",
            ),
            // A value over several lines, a long one, an empty one.
            ("a: \"v\n  1\" @app:tag@\nb: 1\n", "a: \"v2.0.0\" @app:tag@\nb: 1\n"),
            ("a: '' @app:tag@\n", "a: 'v2.0.0' @app:tag@\n"),
            // Lists of lists, and of nothing else.
            ("- - v1 @app:tag@\n  - v1\n-\n  - x\n", "- - v2.0.0 @app:tag@\n  - v1\n-\n  - x\n"),
            // Merge keys and anchored mappings stay what they are.
            (
                "base: &base\n  image: x:1 @app@\nweb:\n  <<: *base\n  image: x:1 @app@\n",
                "base: &base\n  image: ghcr.io/org/app:v2.0.0 @app@\nweb:\n  <<: *base\n  image: ghcr.io/org/app:v2.0.0 @app@\n",
            ),
            // Directives and a document's end.
            ("%YAML 1.1\n---\na: v1 @app:tag@\n...\n", "%YAML 1.1\n---\na: v2.0.0 @app:tag@\n...\n"),
            // Policies that are not ours.
            ("a: v1 @other:tag@\n", "a: v1 @other:tag@\n"),
            ("a: v2.0.0 @app:tag@\nb: 1.10\n", "a: v2.0.0 @app:tag@\nb: 1.10\n"),
        ];
        for (before, after) in cases {
            assert_eq!(edited(before), marked(after), "{before}");
        }
    }

    #[test]
    fn a_block_scalar_with_a_marker_keeps_its_style() {
        assert_eq!(edited("a: | @app:tag@\n  v1\nb: 1\n"), marked("a: |- @app:tag@\n  v2.0.0\nb: 1\n"));
    }

    #[test]
    fn every_change_says_where_it_is_and_what_it_was() {
        let text = marked(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  image: x:1 @app@\n---\nimage: {tag: v1} \ntag: v1 @app:tag@\n",
        );
        let edited = edit(text.as_bytes(), &setters());
        let id = |object: &ObjectId| {
            format!("{}/{}/{}/{}", object.api_version, object.kind, object.namespace, object.name)
        };
        let told: Vec<String> = edited
            .changes
            .iter()
            .map(|(object, one)| format!("{} {}→{} {}", id(object), one.old_value, one.new_value, one.setter))
            .collect();
        assert_eq!(
            told,
            ["apps/v1/Deployment/shop/web x:1→ghcr.io/org/app:v2.0.0 flux:app", "/// v1→v2.0.0 flux:app:tag"]
        );
        let list = marked(
            "kind: List\napiVersion: v1\nitems:\n- kind: Pod\n  metadata: {name: a}\n  image: x @app@\n",
        );
        let edited = edit(list.as_bytes(), &setters());
        assert_eq!((edited.changes[0].0.kind.as_str(), edited.changes[0].0.name.as_str()), ("Pod", "a"));
    }

    #[test]
    fn malformed_and_misplaced_markers_are_told_with_their_line() {
        let problems = |text: &str| {
            let edited = edit(text.as_bytes(), &setters());
            assert!(edited.bytes.is_none(), "{text}");
            edited
                .problems
                .into_iter()
                .map(|one| format!("{}: {}", one.line, one.problem))
                .collect::<Vec<_>>()
        };
        let found = problems(
            "a: 1\nb: v1 # {\"$imagepolicy\": \"app\"}\nc: v1 # {\"$imagepolicy\": \"flux:app:tags\"}\n",
        );
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("2: 'app' lacks the namespace"), "{found:?}");
        assert!(found[1].starts_with("3: 'flux:app:tags' ends in something other"), "{found:?}");
        let above = problems(&marked("a: 1\n@app:tag@\nb: v1\n"));
        assert!(above.len() == 1 && above[0].contains("no effect on a key"), "{above:?}");
        let mapping = problems(&marked("a:\n  b: {c: v1} @app:tag@\n"));
        assert!(
            mapping.len() == 1 && mapping[0].starts_with("2: the marker has no effect on"),
            "{mapping:?}"
        );
        let broken = problems(&marked("a: v1 @app:tag@\n b: 2\n\tc: {\n"));
        assert!(broken.len() == 1, "{broken:?}");
        assert!(
            problems("{{ if .Values.x }}\na: v1 # {\"$imagepolicy\": \"flux:app\"}\n{{ end }}\n").len() == 1
        );
    }

    #[test]
    fn an_image_that_is_none_fails_by_name() {
        let image =
            ImageReference { name: "ghcr.io/org/app".into(), tag: "v1\nevil: true".into(), digest: None };
        let error = Setters::new("flux", &BTreeMap::from([("app".to_owned(), image)])).unwrap_err();
        assert!(error.to_string().contains("ImagePolicy app: its tag is no tag"), "{error}");
    }

    #[test]
    fn a_very_long_file_is_edited_in_place() {
        let mut text = String::from("items:\n");
        for number in 0..20_000 {
            text.push_str(&format!("- name: n{number} # comment {number}\n  image: \"x:{number}\"\n"));
        }
        let before = marked(&format!("{text}- image: x @app@\n"));
        let after = marked(&format!("{text}- image: ghcr.io/org/app:v2.0.0 @app@\n"));
        let edited = edit(before.as_bytes(), &setters());
        assert!(edited.bytes.unwrap() == after.into_bytes(), "the last line changes and nothing else");
    }
}
