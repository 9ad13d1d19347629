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
