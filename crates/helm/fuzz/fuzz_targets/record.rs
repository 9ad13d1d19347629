//! Release records: any bytes are a release or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(release) = helm::release::decode(data) {
        let again = helm::release::encode(&release, helm::Dialect::Helm4).expect("what was decoded can be encoded");
        assert!(helm::release::decode(again.as_bytes()).is_ok());
    }
});
