//! Short runs of the fuzz targets with fixed seeds: bytes that are nearly right must not crash anything.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use helm::{Capabilities, Chart, Dialect, File, Limits, Operation, Options, ReleaseOptions, SetMode, Values};

/// A small generator with a known beginning; the point is variety, not quality.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    /// Pieces put together in no sensible way.
    fn jumble(&mut self, pieces: &[&str], count: usize) -> String {
        (0..count).map(|_| pieces[self.roll(pieces.len())]).collect()
    }

    /// The bytes with a few of them changed, dropped or doubled.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.roll(6) {
            let at = self.roll(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match self.roll(4) {
                0 => bytes[at] = u8::try_from(self.roll(256)).unwrap(),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, 0xff),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
        }
        bytes
    }
}

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

fn archive() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in
        [("c/Chart.yaml", CHART), ("c/values.yaml", "a: 1\n"), ("c/templates/t.yaml", "a: {{ .Values.a }}\n")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn damaged_archives_are_charts_or_errors() {
    let mut dice = Dice(0x5eed);
    let plain = archive();
    let limits = Limits { unpacked: 1 << 20, depth: 4 };
    assert!(Chart::from_archive(&gzip(&plain), limits, Dialect::Helm4).is_ok());
    for _ in 0..300 {
        let _ = Chart::from_archive(&gzip(&dice.damage(&plain)), limits, Dialect::Helm4);
        let _ = Chart::from_archive(&dice.damage(&gzip(&plain)), limits, Dialect::Helm4);
    }
}

#[test]
fn jumbled_value_paths_set_something_or_fail() {
    let pieces = [
        "a", "b", ".", "[", "]", "0", "1", "-1", "65537", "=", ",", "{", "}", "\\", "\"", "null", "true",
        " ", "é", "[0]", "{x,y}",
    ];
    let mut dice = Dice(0xa11ce);
    for _ in 0..20_000 {
        let count = dice.roll(12);
        let text = dice.jumble(&pieces, count);
        for mode in [SetMode::Typed, SetMode::Text, SetMode::Json, SetMode::Literal] {
            let mut values = Values::new();
            let _ = values.set(&text, mode);
            let _ = values.set(&text, SetMode::Typed);
        }
    }
}

#[test]
fn jumbled_templates_render_or_fail() {
    let pieces = [
        "{{",
        "}}",
        "{{-",
        "-}}",
        " ",
        "\n",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "include",
        "tpl",
        "\"x\"",
        ".",
        ".Values",
        "$",
        "$x",
        ":=",
        "=",
        "|",
        "(",
        ")",
        "toYaml",
        "fromYaml",
        "dict",
        "list",
        "1",
        "1.5",
        "nil",
        "`",
        "'a'",
        "printf",
        "%d",
        ",",
        "/*",
        "*/",
        "required",
        "lookup",
        ".Files.Get",
        "index",
        "set",
        "merge",
        "until",
        "---",
        "a: ",
        "quote",
    ];
    let mut dice = Dice(0xbeef);
    let release = ReleaseOptions {
        name: "r".to_owned(),
        namespace: "n".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    let capabilities = Capabilities::offline(Dialect::Helm4);
    let options = Options {
        limits: gotemplate::Limits { steps: 20_000, ..gotemplate::Limits::default() },
        ..Options::default()
    };
    for _ in 0..3_000 {
        let inner = dice.roll(8);
        let text = (0..3).map(|_| format!("{{{{ {} }}}}", dice.jumble(&pieces, inner))).collect::<String>()
            + &dice.jumble(&pieces, inner);
        let file = |name: &str, text: &str| File {
            name: name.to_owned(),
            data: text.as_bytes().to_vec().into(),
            modified: None,
        };
        let files = vec![file("Chart.yaml", CHART), file("templates/t.yaml", &text)];
        let chart = Chart::from_files(files, Limits::default(), Dialect::Helm4).unwrap();
        let _ = helm::render(&chart, &Values::new(), &release, &capabilities, &StoppedClock, &options);
    }
}

#[test]
fn damaged_records_are_releases_or_errors() {
    let mut dice = Dice(0xdecade);
    let json = br#"{"name":"a","version":2,"info":{"status":"deployed","deleted":""},"hooks":[{"events":["test"],"last_run":{"phase":""}}],"chart":{"metadata":{"name":"c"}},"config":{"a":1}}"#;
    use base64::Engine as _;
    let pack = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    assert!(helm::release::decode(pack(json).as_bytes()).is_ok());
    for _ in 0..2_000 {
        for bytes in
            [pack(&dice.damage(json)), pack(&gzip(&dice.damage(json))), pack(&dice.damage(&gzip(json)))]
        {
            if let Ok(release) = helm::release::decode(bytes.as_bytes()) {
                let again = helm::release::encode(&release, Dialect::Helm4).unwrap();
                assert!(helm::release::decode(again.as_bytes()).is_ok());
            }
        }
    }
}
