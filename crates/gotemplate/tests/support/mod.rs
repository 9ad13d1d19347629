//! A host for tests: a fixed clock and a simple generator that answers the same every time.

use std::cell::Cell;

use gotemplate::Host;
use jiff::Timestamp;

pub struct TestHost {
    state: Cell<u64>,
}

impl Default for TestHost {
    fn default() -> Self {
        Self { state: Cell::new(0x9e37_79b9_7f4a_7c15) }
    }
}

impl Host for TestHost {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_709_212_455).expect("a time in 2024")
    }

    fn random(&self, buffer: &mut [u8]) {
        for byte in buffer {
            let mut state = self.state.get();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            self.state.set(state);
            *byte = (state >> 32) as u8;
        }
    }
}

/// The text as Go's JSON shows it: one U+FFFD for each byte that is not UTF-8.
#[allow(dead_code, reason = "not every test that shares this module compares such text")]
pub fn as_go_json(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| out.push('\u{fffd}'));
    }
    out
}
