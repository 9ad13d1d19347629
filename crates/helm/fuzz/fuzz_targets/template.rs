//! Lexer, parser and executor: any text renders or is an error, within limits.
#![no_main]

use helm::{Capabilities, Chart, Dialect, File, Limits, Operation, Options, ReleaseOptions, Values};

struct StoppedClock;

impl gotemplate::Host for StoppedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

libfuzzer_sys::fuzz_target!(|data: &str| {
    let file = |name: &str, text: &str| File { name: name.to_owned(), data: text.as_bytes().to_vec().into(), modified: None };
    let files = vec![file("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"), file("templates/t.yaml", data)];
    let Ok(chart) = Chart::from_files(files, Limits::default(), Dialect::Helm4) else { return };
    let release = ReleaseOptions { name: "r".to_owned(), namespace: "n".to_owned(), revision: 1, operation: Operation::Install };
    let limits = gotemplate::Limits { steps: 100_000, ..gotemplate::Limits::default() };
    let options = Options { limits, ..Options::default() };
    let _ = helm::render(&chart, &Values::new(), &release, &Capabilities::offline(Dialect::Helm4), &StoppedClock, &options);
});
