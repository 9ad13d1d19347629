//! Inputs that mean harm: each ends in an error of its class, soon.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test that looks at the clock")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use file_tree::{Entry, Files, Kind, MemoryTree, TreePath};
use kustomize::{Class, LoadRestrictions, Options};

/// Far more than a release build needs: debug builds are slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// What this thread has computed so far: other work of the machine does not count.
fn spent() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("the thread has a clock")
        .into()
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn build(files: &dyn Files, root: &str, options: &Options) -> Result<String, kustomize::Error> {
    let started = spent();
    let built = kustomize::build(files, &path(root), options).and_then(|manifests| manifests.to_yaml());
    let took = spent() - started;
    assert!(took < PATIENCE, "took {took:?}");
    built
}

fn class_of(texts: &[(&str, &str)]) -> Class {
    let files = MemoryTree::from_texts(texts.iter().copied()).unwrap();
    build(&files, "", &Options::FLUX).expect_err("hostile input").class()
}

#[test]
fn folders_that_include_one_another() {
    let files = MemoryTree::from_texts([
        ("a/kustomization.yaml", "resources: [../b]"),
        ("b/kustomization.yaml", "resources: [../c]"),
        ("c/kustomization.yaml", "components: [../a]"),
    ])
    .unwrap();
    assert_eq!(build(&files, "a", &Options::FLUX).unwrap_err().class(), Class::Cycle);
}

#[test]
fn folders_that_unfold_without_end() {
    let mut files = MemoryTree::new();
    for level in 0..60 {
        let text = format!("resources: [../l{0}, ../l{0}]", level + 1);
        files.insert(path(&format!("l{level}/kustomization.yaml")), text);
    }
    files.insert(path("l60/kustomization.yaml"), "resources: []");
    assert_eq!(build(&files, "l0", &Options::FLUX).unwrap_err().class(), Class::Limit);
}

/// Every field that takes a path.
fn kustomizations_with(path: &str) -> Vec<String> {
    vec![
        format!("resources: ['{path}']"),
        format!("bases: ['{path}']"),
        format!("components: ['{path}']"),
        format!("crds: ['{path}']"),
        format!("configurations: ['{path}']"),
        format!("generators: ['{path}']"),
        format!("transformers: ['{path}']"),
        format!("validators: ['{path}']"),
        format!("patches: [{{path: '{path}'}}]"),
        format!("patchesStrategicMerge: ['{path}']"),
        format!("patchesJson6902: [{{path: '{path}', target: {{kind: A, name: a}}}}]"),
        format!("replacements: [{{path: '{path}'}}]"),
        format!("openapi: {{path: '{path}'}}"),
        format!("configMapGenerator: [{{name: a, files: ['{path}']}}]"),
        format!("configMapGenerator: [{{name: a, envs: ['{path}']}}]"),
        format!("secretGenerator: [{{name: a, files: ['k={path}']}}]"),
        format!("secretGenerator: [{{name: a, env: '{path}'}}]"),
        format!(
            "transformers:\n- |-\n  apiVersion: builtin\n  kind: ValueAddTransformer\n  metadata: {{name: a}}\n  value: a\n  targetFilePath: '{path}'"
        ),
        format!(
            "generators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {{name: a}}\n  files: ['{path}']"
        ),
    ]
}

#[test]
fn paths_above_the_root_of_the_tree() {
    for options in [Options::FLUX, Options::COMMAND] {
        for text in kustomizations_with("../../secret") {
            let files = MemoryTree::from_texts([("app/kustomization.yaml", text.as_str())]).unwrap();
            let error = build(&files, "app", &options).expect_err(&text);
            assert!(error.to_string().contains("leaves the tree"), "{text}: {error}");
        }
    }
}

#[test]
fn absolute_paths_start_at_the_root_of_the_tree() {
    for text in kustomizations_with("/etc/passwd") {
        let files = MemoryTree::from_texts([("app/kustomization.yaml", text.as_str())]).unwrap();
        let error = build(&files, "app", &Options::FLUX).expect_err(&text);
        assert!(matches!(error.class(), Class::Load | Class::Escape), "{text}: {error}");
    }
    let outside = [
        ("app/kustomization.yaml", "resources: [/other.yaml]"),
        ("other.yaml", "kind: A\nmetadata: {name: a}"),
    ];
    let files = MemoryTree::from_texts(outside).unwrap();
    let error = build(&files, "app", &Options::COMMAND).unwrap_err();
    assert!(error.to_string().contains("is not in or below '/app'"), "{error}");
}

/// A tree in which `app/link` leads to `secret`, or out of the tree altogether.
struct Linked {
    files: MemoryTree,
    out: bool,
}

impl Linked {
    fn target(&self, path: &TreePath) -> Result<TreePath, file_tree::Error> {
        if path.as_str() != "app/link" {
            return Ok(path.clone());
        }
        if self.out {
            Err(file_tree::Error::Escapes(path.clone()))
        } else {
            Ok(TreePath::parse("secret").unwrap())
        }
    }
}

impl Files for Linked {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, file_tree::Error> {
        self.files.read(&self.target(path)?)
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, file_tree::Error> {
        self.files.list(path)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        self.files.kind(&self.target(path).ok()?)
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, file_tree::Error> {
        self.target(path)
    }
}

#[test]
fn symbolic_links_out_of_the_root_or_the_tree() {
    for (out, restrictions) in [
        (false, LoadRestrictions::RootOnly),
        (true, LoadRestrictions::RootOnly),
        (true, LoadRestrictions::None),
    ] {
        let options = Options { load_restrictions: restrictions, ..Options::FLUX };
        for text in kustomizations_with("link") {
            let files =
                MemoryTree::from_texts([("app/kustomization.yaml", text.as_str()), ("secret", "A: 1")])
                    .unwrap();
            let error = build(&Linked { files, out }, "app", &options).expect_err(&text);
            let shown = error.to_string();
            let refused = shown.contains("security;") || shown.contains("file is not directory");
            assert!(refused, "{text}: {shown}");
        }
    }
}

#[test]
fn remote_bases_and_files() {
    for remote in [
        "https://example.com/a.yaml",
        "https://github.com/org/repo//base?ref=v1",
        "git@github.com:org/repo.git",
        "github.com/org/repo",
    ] {
        for text in [format!("resources: ['{remote}']"), format!("components: ['{remote}']")] {
            assert_eq!(class_of(&[("kustomization.yaml", &text)]), Class::Remote, "{text}");
        }
    }
}

#[test]
fn alias_bombs() {
    let mut bomb = "kind: A\nmetadata: {name: a}\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 9].join(", "));
    }
    assert_eq!(class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &bomb)]), Class::Limit);
    let kustomization = format!("resources: []\n{bomb}");
    class_of(&[("kustomization.yaml", &kustomization)]);
    let nested = "a: &a\n  b: *a\nkind: A\nmetadata: {name: a}\n";
    class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", nested)]);
}

#[test]
fn a_megabyte_of_brackets() {
    let brackets = "[".repeat(1 << 20);
    class_of(&[("kustomization.yaml", &brackets)]);
    class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &brackets)]);
    class_of(&[("kustomization.yaml", "patches: [{path: a.yaml}]"), ("a.yaml", &brackets)]);
    let braces = "{a: ".repeat(1 << 18);
    class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &braces)]);
    let lists = "- ".repeat(1 << 19);
    class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &lists)]);
}

#[test]
fn bytes_that_are_no_text() {
    for bytes in
        [&b"kind: \xff\xfe"[..], b"kind: A\0B\nmetadata: {name: a}", b"\0\0\0\0", b"\xef\xbb\xbf\xff"]
    {
        let mut files = MemoryTree::new();
        files.insert(path("kustomization.yaml"), "resources: [a.yaml]");
        files.insert(path("a.yaml"), bytes);
        build(&files, "", &Options::FLUX).expect_err("no text");
        files.insert(path("kustomization.yaml"), bytes);
        build(&files, "", &Options::FLUX).expect_err("no text");
    }
}

#[test]
fn a_hundred_thousand_resources_with_one_name() {
    let one = "kind: A\nmetadata: {name: a}\n---\n".repeat(100_000);
    assert_eq!(
        class_of(&[("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &one)]),
        Class::DuplicateId
    );
}

#[test]
fn one_name_in_many_namespaces_is_no_square() {
    let mut all = String::new();
    for number in 0..5_000 {
        let _ = write!(
            all,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: n{number}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: n{number}}}\nspec: {{volumes: [{{name: v, configMap: {{name: c}}}}]}}\n---\n"
        );
    }
    let files = MemoryTree::from_texts([
        ("kustomization.yaml", "namePrefix: x-\nresources: [a.yaml]"),
        ("a.yaml", all.as_str()),
    ])
    .unwrap();
    let output = build(&files, "", &Options::FLUX).unwrap();
    assert_eq!(output.matches("name: x-c").count(), 10_000);
}

#[test]
fn expressions_that_explode() {
    let pod = ("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n");
    let target = "resources: [a.yaml]\npatches:\n- target: {name: '(a{1000}){1000}{1000}'}\n  patch: '[]'\n- target: {name: '((((('}\n  patch: '[{\"op\": \"add\", \"path\": \"/x\", \"value\": 1}]'";
    class_of(&[("kustomization.yaml", target), pod]);
    class_of(&[("kustomization.yaml", "resources: [a.yaml]\nimages: [{name: '(', newTag: a}]"), pod]);
}

#[test]
fn a_replacement_that_would_add_elements_for_ever() {
    let text = "resources: [a.yaml]\nreplacements:\n- sourceValue: x\n  targets: [{select: {kind: A}, fieldPaths: ['list.[name=^y$].z'], options: {create: true}}]";
    assert_eq!(
        class_of(&[("kustomization.yaml", text), ("a.yaml", "kind: A\nmetadata: {name: a}\nlist: []\n")]),
        Class::Replacement
    );
}

#[test]
fn definitions_that_refer_to_themselves() {
    let crd = r#"{"a.A": {"Schema": {"properties": {"kind": {}, "apiVersion": {}, "metadata": {}, "x": {"$ref": "a.A"}}}}}"#;
    assert_eq!(class_of(&[("kustomization.yaml", "crds: [c.json]"), ("c.json", crd)]), Class::Limit);
}

#[test]
fn names_with_commas_confuse_the_history() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: 'ENC[a,b]'}\n";
    let text = "namespace: test\nnamePrefix: p\nresources: [a.yaml]";
    class_of(&[("kustomization.yaml", text), ("a.yaml", secret)]);
}
