//! Any template ends, in output or in an error, within a small budget.
#![no_main]

use std::sync::Arc;

use gotemplate::{Functions, Host, Limits, Numbers, Session, Set, Value};
use libfuzzer_sys::fuzz_target;

struct Still;

impl Host for Still {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

fuzz_target!(|text: &str| {
    let slow = ["genPrivateKey", "genCA", "genSelfSignedCert", "genSignedCert", "bcrypt", "htpasswd", "derivePassword"];
    let mut set = Set::new(Functions::sprig().without(&slow).shared());
    let Ok(template) = set.parse("t", text) else { return };
    let limits = Limits { steps: 100_000, ..Limits::default() };
    let session = Session::new(&Still, limits);
    let data = serde_json::json!({ "s": "text", "n": 3, "l": [1, "a", null], "m": { "k": "v" } });
    let _ = Arc::new(set).execute_template(&session, &template, &Value::from_json(&data, Numbers::Float));
});
