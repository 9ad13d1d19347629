//! Charts that mean harm end in an error that says why, soon and without taking the machine along.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use helm::{
    ArchiveError, Capabilities, Chart, Dialect, File, Limits, LoadError, Operation, Options, ReleaseOptions,
    RenderError, SetMode, Values,
};
use serde_json::json;

struct StoppedClock;

impl gotemplate::Host for StoppedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

const CHART: &str = "apiVersion: v2\nname: c\nversion: 1.0.0\n";

fn chart(files: &[(&str, &str)]) -> Result<Chart, LoadError> {
    let file = |(name, text): &(&str, &str)| File {
        name: (*name).to_owned(),
        data: text.as_bytes().to_vec().into(),
        modified: None,
    };
    let mut all = vec![file(&("Chart.yaml", CHART))];
    all.extend(files.iter().map(file));
    Chart::from_files(all, Limits::default(), Dialect::Helm4)
}

fn render(chart: &Chart, values: &Values) -> Result<helm::Rendered, RenderError> {
    let release = ReleaseOptions {
        name: "r".to_owned(),
        namespace: "ns".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    helm::render(chart, values, &release, &Capabilities::offline(Dialect::Helm4), &StoppedClock, &options())
}

/// A release build keeps to a second; a debug build on a busy machine only has to end.
fn soon<T>(what: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = what();
    let limit = Duration::from_secs(if cfg!(debug_assertions) { 600 } else { 1 });
    assert!(start.elapsed() < limit, "took {:?}", start.elapsed());
    result
}

/// The limits that charts get, a tenth of them where code runs ten times slower.
fn options() -> Options<'static> {
    let mut options = Options::default();
    if cfg!(debug_assertions) {
        options.limits.steps /= 10;
    }
    options
}

fn fails(template: &str) -> RenderError {
    let chart = chart(&[("templates/t.yaml", template)]).unwrap();
    soon(|| render(&chart, &Values::new())).unwrap_err()
}

fn archive(entries: &[(&str, tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (name, kind, link, data) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if !link.is_empty() {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn load(archive: &[u8]) -> LoadError {
    soon(|| Chart::from_archive(archive, Limits::default(), Dialect::Helm4)).unwrap_err()
}

#[test]
fn archives_cannot_leave_the_chart() {
    use tar::EntryType::{Link, Regular, Symlink};
    let base: (&str, tar::EntryType, &str, &[u8]) = ("c/Chart.yaml", Regular, "", CHART.as_bytes());
    let refused = |name: &str, kind, link: &str| load(&archive(&[base, (name, kind, link, b"")]));
    assert_eq!(refused("c/../../etc/passwd", Regular, ""), LoadError::Archive(ArchiveError::ParentReference));
    assert_eq!(refused("c//etc/passwd", Regular, ""), LoadError::Archive(ArchiveError::AbsolutePath));
    assert_eq!(refused("c/.", Regular, ""), LoadError::Archive(ArchiveError::OutsideBase("c/.".to_owned())));
    assert_eq!(refused("c/c:/x", Regular, ""), LoadError::Archive(ArchiveError::IllegalName));
    for (name, kind, target) in [
        ("c/templates/a", Symlink, "../../../etc/passwd"),
        ("c/a", Symlink, "/etc/passwd"),
        ("c/a", Link, "/etc/passwd"),
    ] {
        assert_eq!(
            refused(name, kind, target),
            LoadError::Archive(ArchiveError::LinkOutside(name.to_owned()))
        );
    }
    let inside = archive(&[base, ("c/a", Symlink, "Chart.yaml", b"")]);
    let chart = Chart::from_archive(&inside, Limits::default(), Dialect::Helm4).unwrap();
    assert!(chart.files[0].data.is_empty(), "a link within the chart is an empty file, as in Helm");
}

#[test]
fn archive_bombs_stop_at_the_limit() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0_u8; 1 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_path("c/values.yaml").unwrap();
    header.set_size(1 << 33);
    header.set_cksum();
    bomb.write_all(header.as_bytes()).unwrap();
    for _ in 0..64 {
        bomb.write_all(&zeros).unwrap();
    }
    let limits = Limits { unpacked: 8 << 20, ..Limits::default() };
    let bomb = bomb.finish().unwrap();
    let error = soon(|| Chart::from_archive(&bomb, limits, Dialect::Helm4)).unwrap_err();
    assert_eq!(error, LoadError::Archive(ArchiveError::TooLarge(8 << 20)));
    assert_eq!(load(b"not gzip"), LoadError::Archive(ArchiveError::NotGzip));
    assert!(matches!(load(&bomb[..40]), LoadError::Archive(_)));
}

#[test]
fn archives_of_countless_files_are_refused() {
    let mut entries = vec![("c/Chart.yaml", tar::EntryType::Regular, "", CHART.as_bytes())];
    entries.resize(50_001, ("c/x", tar::EntryType::Regular, "", &b""[..]));
    assert!(matches!(load(&archive(&entries)), LoadError::Archive(ArchiveError::TooManyFiles(50_000))));
}

#[test]
fn archives_within_archives_share_one_budget() {
    use tar::EntryType::Regular;
    let filler = vec![b'#'; 1 << 20];
    let inner = archive(&[
        ("i/Chart.yaml", Regular, "", b"name: i\nversion: 1.0.0\n"),
        ("i/values.yaml", Regular, "", &filler),
    ]);
    let names: Vec<String> = (0..9).map(|at| format!("c/charts/i{at}.tgz")).collect();
    let mut entries: Vec<(&str, tar::EntryType, &str, &[u8])> =
        vec![("c/Chart.yaml", Regular, "", CHART.as_bytes())];
    entries.extend(names.iter().map(|name| (name.as_str(), Regular, "", inner.as_slice())));
    let limits = Limits { unpacked: 8 << 20, ..Limits::default() };
    let error = soon(|| Chart::from_archive(&archive(&entries), limits, Dialect::Helm4)).unwrap_err();
    assert!(error.to_string().contains("larger than the maximum size"), "{error}");
}

#[test]
fn subcharts_nest_only_so_deep() {
    let path = |depth: usize| format!("{}Chart.yaml", "charts/c/".repeat(depth));
    let files: Vec<File> = (0..100)
        .map(|depth| File { name: path(depth), data: CHART.as_bytes().into(), modified: None })
        .collect();
    let error = soon(|| Chart::from_files(files, Limits::default(), Dialect::Helm4)).unwrap_err();
    assert!(error.to_string().contains("nested more than 32 deep"), "{error}");
}

#[test]
fn chart_names_are_no_paths() {
    for name in [".", "..", "a/b", "../x", "/"] {
        let file = File {
            name: "Chart.yaml".to_owned(),
            data: format!("apiVersion: v2\nversion: 1.0.0\nname: {name:?}\n").into(),
            modified: None,
        };
        let error = Chart::from_files(vec![file], Limits::default(), Dialect::Helm4).unwrap_err();
        assert!(matches!(error, LoadError::Invalid(_)), "{name}: {error}");
    }
}

#[test]
fn templates_that_never_end_are_stopped() {
    assert!(matches!(
        fails("{{ range $i := until 1000000000 }}{{ $i }}{{ end }}"),
        RenderError::Limit { .. }
    ));
    assert!(matches!(fails("{{ range 1000000000 }}x{{ end }}"), RenderError::Limit { .. }));
    assert!(matches!(fails("{{ repeat 2000000000 \"xxxxxxxxxx\" }}"), RenderError::Limit { .. }));
    let include = fails("{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}");
    assert!(include.to_string().contains("rendering template has a nested reference name: a"), "{include}");
    fails("{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}");
    fails("{{ define \"a\" }}{{ tpl \"{{ include \\\"a\\\" . }}\" . }}{{ end }}{{ include \"a\" . }}");
    fails("{{ $x := \"x\" }}{{ range until 40 }}{{ $x = printf \"%s%s\" $x $x }}{{ end }}{{ $x }}");
    fails(
        "{{ define \"a\" }}{{ include \"b\" . }}{{ include \"b\" . }}{{ end }}{{ define \"b\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
    );
}

#[test]
fn expressions_cannot_blow_up() {
    let chart = chart(&[(
        "templates/t.yaml",
        "a: {{ regexMatch \"^(a+)+$\" (printf \"%sb\" (repeat 100000 \"a\")) }}",
    )])
    .unwrap();
    assert_eq!(soon(|| render(&chart, &Values::new())).unwrap().manifests[0].content, "a: false");
    fails("{{ regexMatch \"(((a{1,1000}){1,1000}){1,1000}){1,1000}\" \"a\" }}");
    // Each of a hundred thousand references to a match of a million bytes.
    let growing = "{{ regexReplaceAll \"a*\" (repeat 1000000 \"a\") (repeat 100000 \"${0}\") }}";
    assert!(matches!(fails(growing), RenderError::Limit { .. }));
}

#[test]
fn reading_and_writing_again_and_again_is_stopped() {
    for loop_body in ["toYaml $.Values", "toJson $.Values", "fromYaml $.Values.text", "toYamlPretty $.Values"]
    {
        let template = format!("{{{{ range until 1000000 }}}}{{{{ $x := {loop_body} }}}}{{{{ end }}}}");
        let chart = chart(&[("templates/t.yaml", &template)]).unwrap();
        let values = Values::from_json(json!({"text": "x: y\n".repeat(20_000)})).unwrap();
        let error = render(&chart, &values).unwrap_err();
        assert!(matches!(error, RenderError::Limit { .. }), "{loop_body}: {error}");
    }
}

#[test]
fn schemas_cannot_reach_out_or_run_for_ever() {
    let check = |schema: serde_json::Value| {
        let chart =
            chart(&[("values.schema.json", &schema.to_string()), ("templates/t.yaml", "a: 1")]).unwrap();
        soon(|| render(&chart, &Values::new())).unwrap_err().to_string()
    };
    assert!(check(json!({"$ref": "file:///etc/passwd"})).contains("failing loading"));
    assert!(check(json!({"$ref": "http://127.0.0.1/x"})).contains("failing loading"));
    assert!(check(json!({"$ref": "#"})).contains("causing reference cycle"));
    assert!(check(json!({"$schema": "https://example.com/draft"})).contains("failing loading"));
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"anyOf": [deep, {"type": "string"}]});
    }
    check(deep);
}

#[test]
fn values_cannot_be_made_to_grow() {
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &('b'..='z')
            .map(|c| {
                let p = char::from(c as u8 - 1);
                format!("{c}: &{c} [*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p}]\n")
            })
            .collect::<String>();
    assert!(soon(|| Values::from_yaml(laughs.as_bytes(), Dialect::Helm4)).is_err());
    let deep = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(soon(|| Values::from_yaml(deep.as_bytes(), Dialect::Helm4)).is_err());
    let large = vec![b'#'; 100 << 20];
    let error = soon(|| Values::from_yaml(&large, Dialect::Helm4)).unwrap_err();
    assert_eq!(error, "values are larger than the maximum size 5242880");
    let text = String::from_utf8(large).unwrap();
    let error = soon(|| chart(&[("values.yaml", &text)])).unwrap_err().to_string();
    assert!(error.contains("values are larger than the maximum size 5242880"), "{error}");
    let mut values = Values::new();
    assert!(values.set(&"a.".repeat(1000), SetMode::Typed).is_err());
    assert!(values.set("a[70000]=1", SetMode::Typed).is_err());
    assert!(values.set(&format!("a{}=1", "[0]".repeat(100_000)), SetMode::Literal).is_err());
}

#[test]
fn deep_values_render_or_fail_but_do_not_crash() {
    let mut tree = json!("x");
    for _ in 0..100 {
        tree = json!({ "a": tree });
    }
    let values = Values::from_json(json!({ "deep": tree })).unwrap();
    let ours = chart(&[(
        "templates/t.yaml",
        "{{ toYaml .Values | nindent 0 }}\n# {{ toJson .Values }}\n# {{ deepCopy .Values | toString }}",
    )])
    .unwrap();
    soon(|| render(&ours, &values)).unwrap();
    let cyclic = chart(&[("templates/t.yaml", "{{ $d := dict \"a\" 1 }}{{ $_ := set $d \"self\" $d }}x: {{ toYaml $d | quote }} {{ toJson $d | quote }}{{ $_ := toToml $d }}{{ $_ := toYamlPretty $d }}")]).unwrap();
    let _ = soon(|| render(&cyclic, &Values::new()));
}

#[test]
fn what_is_printed_may_be_any_bytes() {
    let chart = chart(&[
        ("templates/t.yaml", "a: {{ b64dec \"gICA\" | quote }}\n"),
        ("templates/NOTES.txt", "{{ b64dec \"gICA\" }}"),
    ])
    .unwrap();
    let _ = soon(|| render(&chart, &Values::new()));
}
