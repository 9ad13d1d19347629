//! A small `helm`: `template`, `semver` and `functions`, to be compared with the real one.
//!
//! `cargo run --release -p helm --example helm -- template NAME CHART [flags]`
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "an example owns its files and its clock")]

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use file_tree::{Entry, Kind, TreePath};
use helm::{
    Capabilities, Chart, Dialect, File, KubeVersion, Limits, Operation, Options, ReleaseOptions, RenderError,
    Rendered, SetMode, Values,
};
use serde_json::{Value as Json, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let result =
        match words.as_slice() {
            ["template", rest @ ..] => write_template(rest, &mut out).map(|()| String::new()),
            ["semver", constraint, version] => semver(constraint, version),
            ["functions", file] => functions(file),
            _ => Err("usage: helm template NAME CHART [flags] | semver CONSTRAINT VERSION | functions FILE"
                .to_owned()),
        };
    match result {
        Ok(output) => {
            let written = out.write_all(output.as_bytes()).and_then(|()| out.flush());
            std::process::exit(i32::from(written.is_err()))
        }
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The clock and chance of this machine.
struct Machine;

impl gotemplate::Host for Machine {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn random(&self, buffer: &mut [u8]) {
        use std::io::Read;
        std::fs::File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(buffer))
            .expect("this machine has a source of chance");
    }
}

#[derive(Default)]
struct Flags {
    positional: Vec<String>,
    namespace: Option<String>,
    values: Vec<String>,
    set: Vec<String>,
    set_string: Vec<String>,
    set_json: Vec<String>,
    set_file: Vec<String>,
    set_literal: Vec<String>,
    include_crds: bool,
    kube_version: Option<String>,
    api_versions: Vec<String>,
    show_only: Vec<String>,
    no_hooks: bool,
    skip_tests: bool,
    skip_schema_validation: bool,
    subchart_notes: bool,
    is_upgrade: bool,
    helm3: bool,
    only_notes: bool,
}

impl Flags {
    fn parse(words: &[&str]) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (*word, None),
            };
            let mut value = || {
                inline
                    .clone()
                    .or_else(|| words.next().map(|w| (*w).to_owned()))
                    .ok_or_else(|| format!("flag needs an argument: {name}"))
            };
            match name {
                "-n" | "--namespace" => flags.namespace = Some(value()?),
                "-f" | "--values" => flags.values.extend(value()?.split(',').map(str::to_owned)),
                "--set" => flags.set.push(value()?),
                "--set-string" => flags.set_string.push(value()?),
                "--set-json" => flags.set_json.push(value()?),
                "--set-file" => flags.set_file.push(value()?),
                "--set-literal" => flags.set_literal.push(value()?),
                "--kube-version" => flags.kube_version = Some(value()?),
                "-a" | "--api-versions" => flags.api_versions.extend(value()?.split(',').map(str::to_owned)),
                "-s" | "--show-only" => flags.show_only.push(value()?),
                "--include-crds" => flags.include_crds = inline.as_deref() != Some("false"),
                "--no-hooks" => flags.no_hooks = inline.as_deref() != Some("false"),
                "--skip-tests" => flags.skip_tests = inline.as_deref() != Some("false"),
                "--skip-schema-validation" => {
                    flags.skip_schema_validation = inline.as_deref() != Some("false")
                }
                "--render-subchart-notes" => flags.subchart_notes = inline.as_deref() != Some("false"),
                "--is-upgrade" => flags.is_upgrade = inline.as_deref() != Some("false"),
                // Not flags of helm: whose rules to follow, and NOTES.txt instead of manifests.
                "--helm3" => flags.helm3 = true,
                "--only-notes" => flags.only_notes = true,
                name if name.starts_with('-') && name.len() > 1 => {
                    return Err(format!("unknown flag: {name}"));
                }
                _ => flags.positional.push((*word).to_owned()),
            }
        }
        Ok(flags)
    }

    fn dialect(&self) -> Dialect {
        if self.helm3 { Dialect::Helm3 } else { Dialect::Helm4 }
    }
}

/// What `template` prints, as text.
pub fn template(words: &[&str]) -> Result<String, String> {
    let mut out = Vec::new();
    write_template(words, &mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn write_template(words: &[&str], out: &mut dyn Write) -> Result<(), String> {
    let flags = Flags::parse(words)?;
    let dialect = flags.dialect();
    let mut capabilities = Capabilities::offline(dialect);
    if let Some(version) = &flags.kube_version {
        capabilities.kube_version = KubeVersion::parse(version, dialect)
            .map_err(|error| format!("invalid kube version '{version}': {error}"))?;
    }
    capabilities.api_versions.extend(flags.api_versions.iter().cloned());
    let (name, path) = match flags.positional.as_slice() {
        [name, path] => (name.clone(), path.clone()),
        [path] => ("release-name".to_owned(), path.clone()),
        [] => return Err(
            "\"helm template\" requires at least 1 argument\n\nUsage:  helm template [NAME] [CHART] [flags]"
                .to_owned(),
        ),
        [_, _, rest @ ..] => {
            return Err(format!("expected at most two arguments, unexpected arguments: {}", rest.join(", ")));
        }
    };
    let path = PathBuf::from(path.trim());
    if !path.exists() {
        return Err(format!("path {:?} not found", path.display().to_string()));
    }
    let values = merge_values(&flags)?;
    let chart = load(&path, dialect)?;
    if chart.metadata.chart_type == "library" {
        return Err("library charts are not installable".to_owned());
    }
    let missing = helm::missing_dependencies(&chart);
    if !missing.is_empty() {
        let wording = match dialect {
            Dialect::Helm4 => {
                "an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch missing dependencies: "
            }
            Dialect::Helm3 => {
                "An error occurred while checking for chart dependencies. You may need to run `helm dependency build` to fetch missing dependencies: "
            }
        };
        return Err(format!(
            "{wording}found in Chart.yaml, but missing in charts/ directory: {}",
            missing.join(", ")
        ));
    }
    if let Err(error) = helm::validate_release_name(&name) {
        let cause = format!("release name {}: {error}", quote(&name));
        if dialect == Dialect::Helm3 {
            return Err(cause);
        }
        eprintln!("level=ERROR msg=\"release name check failed\" error={}", quote(&cause));
        return Err(format!("release name check failed: {cause}"));
    }
    let release = ReleaseOptions {
        name,
        namespace: flags.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        revision: 1,
        operation: if flags.is_upgrade { Operation::Upgrade } else { Operation::Install },
    };
    let options = Options {
        dialect,
        skip_schema_validation: flags.skip_schema_validation,
        subchart_notes: flags.subchart_notes,
        ..Options::default()
    };
    let rendered = helm::render(&chart, &values, &release, &capabilities, &Machine, &options)
        .map_err(|error| fail(&error))?;
    for warning in &rendered.warnings {
        eprintln!("{warning}");
    }
    let result = print(&rendered, &flags, out);
    // The program is about to end, and the system takes memory back faster than every destructor would.
    std::mem::forget((chart, rendered));
    result
}

fn fail(error: &RenderError) -> String {
    if let RenderError::Dependencies { cause, dialect: Dialect::Helm4 } = error {
        eprintln!("level=ERROR msg=\"chart dependencies processing failed\" error={}", quote(cause));
    }
    let advice =
        if error.is_before_rendering() { "" } else { "\n\nUse --debug flag to render out invalid YAML" };
    format!("{error}{advice}")
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn print(rendered: &Rendered, flags: &Flags, out: &mut dyn Write) -> Result<(), String> {
    let wrong = |error: std::io::Error| error.to_string();
    if flags.only_notes {
        return out.write_all(rendered.notes.as_bytes()).map_err(wrong);
    }
    if flags.show_only.is_empty() {
        return print_all(rendered, flags, out).map_err(wrong);
    }
    let mut all = Vec::new();
    print_all(rendered, flags, &mut all).map_err(wrong)?;
    out.write_all(select(&String::from_utf8_lossy(&all), flags)?.as_bytes()).map_err(wrong)
}

/// The manifest, trimmed at its end, and the hooks. Written piece by piece: CRDs alone can be megabytes.
fn print_all(rendered: &Rendered, flags: &Flags, out: &mut dyn Write) -> std::io::Result<()> {
    let documents: Vec<(&str, &[u8])> = rendered.documents(flags.include_crds).collect();
    for (at, (path, content)) in documents.iter().enumerate() {
        write!(out, "---\n# Source: {path}\n")?;
        out.write_all(if at + 1 == documents.len() { content.trim_ascii_end() } else { content })?;
        out.write_all(b"\n")?;
    }
    if documents.is_empty() {
        out.write_all(b"\n")?;
    }
    if !flags.no_hooks {
        let shown = |hook: &&helm::Hook| !(flags.skip_tests && hook.events.contains(&helm::HookEvent::Test));
        for hook in rendered.hooks.iter().filter(shown) {
            write!(out, "---\n# Source: {}\n{}\n", hook.path, hook.manifest)?;
        }
    }
    Ok(())
}

fn select(all: &str, flags: &Flags) -> Result<String, String> {
    let documents = helm::split_manifests(all, flags.dialect());
    let source = |document: &str| {
        Some(document.split("# Source: ").nth(1)?.lines().next()?.split_once('/')?.1.to_owned())
    };
    let mut selected = String::new();
    for wanted in &flags.show_only {
        let matching =
            documents.iter().filter(|d| source(d).is_some_and(|path| helm::path_matches(wanted, &path)));
        let before = selected.len();
        for document in matching {
            selected.push_str(&format!("---\n{document}\n"));
        }
        if selected.len() == before {
            return Err(format!("could not find template {wanted} in chart"));
        }
    }
    Ok(selected)
}

fn merge_values(flags: &Flags) -> Result<Values, String> {
    let mut values = Values::new();
    for file in &flags.values {
        let data = std::fs::read(file).map_err(|error| open_error(file, &error))?;
        values.merge(
            Values::from_yaml(&data, flags.dialect())
                .map_err(|error| format!("failed to parse {file}: {error}"))?,
        );
    }
    for text in &flags.set_json {
        let is_object = text.trim().starts_with('{') && flags.dialect() == Dialect::Helm4;
        let result = if is_object {
            values.set_json_object(text).map_err(|_| " JSON:")
        } else {
            values.set(text, SetMode::Json).map_err(|_| "")
        };
        result.map_err(|colon| format!("failed parsing --set-json data{colon} {text}"))?;
    }
    for (name, texts, mode) in
        [("set", &flags.set, SetMode::Typed), ("set-string", &flags.set_string, SetMode::Text)]
    {
        for text in texts {
            values.set(text, mode).map_err(|error| format!("failed parsing --{name} data: {error}"))?;
        }
    }
    for text in &flags.set_file {
        let mut read = |file: &str| std::fs::read_to_string(file).map_err(|error| open_error(file, &error));
        values
            .set_file(text, &mut read)
            .map_err(|error| format!("failed parsing --set-file data: {error}"))?;
    }
    for text in &flags.set_literal {
        values
            .set(text, SetMode::Literal)
            .map_err(|error| format!("failed parsing --set-literal data: {error}"))?;
    }
    Ok(values)
}

fn open_error(file: &str, error: &std::io::Error) -> String {
    let cause = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    format!("open {file}: {cause}")
}

fn load(path: &Path, dialect: Dialect) -> Result<Chart, String> {
    if path.is_dir() {
        if dialect == Dialect::Helm4 && !path.join("Chart.yaml").exists() {
            let file = std::path::absolute(path).unwrap().join("Chart.yaml");
            return Err(format!(
                "unable to detect chart at {0}: open {0}: no such file or directory",
                file.display()
            ));
        }
        return Chart::from_tree(&Folder(path), &TreePath::root(), Limits::default(), dialect)
            .map_err(|error| error.to_string());
    }
    let bytes = std::fs::read(path).map_err(|error| open_error(&path.display().to_string(), &error))?;
    let shown = std::path::absolute(path).unwrap();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(format!(
            "file '{}' does not appear to be a gzipped archive; got 'text/plain; charset=utf-8'",
            shown.display()
        ));
    }
    Chart::from_archive(&bytes, Limits::default(), dialect).map_err(|error| match (dialect, &error) {
        (Dialect::Helm4, helm::LoadError::Archive(_)) => "unable to load chart archive".to_owned(),
        _ => error.to_string(),
    })
}

/// A folder of this machine, symbolic links followed. Files are read when they are asked for, so that a large one is in memory once.
struct Folder<'a>(&'a Path);

impl file_tree::Files for Folder<'_> {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, file_tree::Error> {
        std::fs::read(self.0.join(path.as_str())).map(Cow::Owned).map_err(|error| unreadable(path, &error))
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, file_tree::Error> {
        let unreadable = |error: std::io::Error| unreadable(path, &error);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.0.join(path.as_str())).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let kind = if entry.path().is_dir() { Kind::Folder } else { Kind::File };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        let found = std::fs::metadata(self.0.join(path.as_str())).ok()?;
        Some(if found.is_dir() { Kind::Folder } else { Kind::File })
    }
}

fn unreadable(path: &TreePath, error: &std::io::Error) -> file_tree::Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => file_tree::Error::NotFound(path.clone()),
        _ => file_tree::Error::Unreadable { path: path.clone(), cause: error.to_string() },
    }
}

fn semver(constraint: &str, version: &str) -> Result<String, String> {
    let verdict =
        semver_range::Constraint::parse(constraint).map_err(|error| error.to_string()).and_then(|c| {
            semver_range::Version::parse(version)
                .map(|v| c.check(&v).to_string())
                .map_err(|error| error.to_string())
        });
    match verdict {
        Ok(text) | Err(text) => Ok(format!("{text}\n")),
    }
}

/// Runs a file of one-line templates: `{values, helpers, files, cases: [{name, template}]}`.
pub fn functions(file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| open_error(file, &error))?;
    let suite: Json = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut out = String::new();
    for case in suite["cases"].as_array().into_iter().flatten() {
        let answer = match one_line(&suite, case["template"].as_str().unwrap_or_default()) {
            Ok(output) => json!({"name": case["name"], "output": output}),
            Err(error) => json!({"name": case["name"], "error": error}),
        };
        out.push_str(&format!("{answer}\n"));
    }
    Ok(out)
}

fn one_line(suite: &Json, template: &str) -> Result<String, String> {
    let file = |name: &str, text: &str| File {
        name: name.to_owned(),
        data: text.as_bytes().to_vec().into(),
        modified: None,
    };
    let mut files = vec![
        file("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.2.3\nappVersion: \"4.5\"\n"),
        file("templates/_helpers.tpl", suite["helpers"].as_str().unwrap_or_default()),
        file("templates/t.yaml", template),
    ];
    for (name, text) in suite["files"].as_object().into_iter().flatten() {
        files.push(file(name, text.as_str().unwrap_or_default()));
    }
    let chart =
        Chart::from_files(files, Limits::default(), Dialect::Helm4).map_err(|error| error.to_string())?;
    let values = Values::from_json(suite["values"].clone()).unwrap_or_default();
    let mut capabilities = Capabilities::offline(Dialect::Helm4);
    capabilities.kube_version =
        KubeVersion::parse("v1.34.0", Dialect::Helm4).map_err(|error| error.to_string())?;
    // The suite was recorded with a cluster that also reports kinds.
    capabilities.api_versions.push("batch/v1/CronJob".to_owned());
    let release = ReleaseOptions {
        name: "rel".to_owned(),
        namespace: "ns".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    let options = Options { dialect: Dialect::Helm4, ..Options::default() };
    let files = helm::render_files(&chart, &values, &release, &capabilities, &Machine, &options)
        .map_err(|error| error.to_string())?;
    Ok(files.get("c/templates/t.yaml").cloned().unwrap_or_default())
}
