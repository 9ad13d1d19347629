//! The post-render hook point beside the real one: `expected.yaml` is what helm 4.3.1 printed with a plugin, `expected-helm3.yaml` what
//! helm 3.22.0 printed with a command, that does what [`Recolour`] does.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::cell::RefCell;
use std::path::Path;

use helm::{
    Capabilities, Chart, Dialect, File, Limits, Operation, Options, PostRender, ReleaseOptions, RenderError,
    Rendered, Values,
};

struct StoppedClock;

impl gotemplate::Host for StoppedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// `sed s/blue/red/`, and one more object at the end.
#[derive(Default)]
struct Recolour {
    seen: RefCell<String>,
}

impl PostRender for Recolour {
    fn run(&self, documents: String) -> Result<String, String> {
        self.seen.replace(documents.clone());
        let lines: String = documents.lines().map(|line| line.replacen("blue", "red", 1) + "\n").collect();
        Ok(lines + "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: added\n")
    }
}

struct Broken;

impl PostRender for Broken {
    fn run(&self, _: String) -> Result<String, String> {
        Err("out of paint".to_owned())
    }
}

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/post_render");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn render(dialect: Dialect, post_render: &dyn PostRender) -> Result<Rendered, RenderError> {
    let names = [
        "Chart.yaml",
        "values.yaml",
        "templates/a.yaml",
        "templates/hook.yaml",
        "templates/_h.tpl",
        "templates/NOTES.txt",
    ];
    let files = names.map(|name| File {
        name: name.to_owned(),
        data: file(&format!("chart/{name}")).into_bytes().into(),
        modified: None,
    });
    let chart = Chart::from_files(files.to_vec(), Limits::default(), dialect).unwrap();
    let release = ReleaseOptions {
        name: "rel".to_owned(),
        namespace: "ns".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    let options = Options { dialect, post_render: Some(post_render), ..Options::default() };
    helm::render(&chart, &Values::new(), &release, &Capabilities::offline(dialect), &StoppedClock, &options)
}

/// As `helm template` prints it.
fn printed(rendered: &Rendered) -> String {
    let hooks: String = rendered
        .hooks
        .iter()
        .map(|hook| format!("---\n# Source: {}\n{}\n", hook.path, hook.manifest))
        .collect();
    format!("{}\n{hooks}", rendered.manifest(false).trim_end())
}

#[test]
fn helm_4_hands_over_marked_documents_hooks_included() {
    let recolour = Recolour::default();
    let rendered = render(Dialect::Helm4, &recolour).unwrap();
    assert_eq!(printed(&rendered), file("expected.yaml"));
    assert_eq!(rendered.notes, "It is blue.\n");
    let seen = recolour.seen.take();
    assert!(seen.contains("postrenderer.helm.sh/postrender-filename: 'paint/templates/hook.yaml'"), "{seen}");
}

#[test]
fn helm_3_hands_over_the_manifest_without_hooks() {
    let recolour = Recolour::default();
    let rendered = render(Dialect::Helm3, &recolour).unwrap();
    assert_eq!(printed(&rendered).trim_end(), file("expected-helm3.yaml").trim_end());
    assert!(!recolour.seen.take().contains("kind: Pod"));
}

#[test]
fn a_post_renderer_that_fails_stops_the_rendering() {
    for dialect in [Dialect::Helm4, Dialect::Helm3] {
        let error = render(dialect, &Broken).unwrap_err();
        assert_eq!(error.to_string(), "error while running post render on files: out of paint");
    }
}
