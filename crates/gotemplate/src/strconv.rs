//! Go's strconv: quoting and numbers.
pub fn quote(text: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(text))
}
pub fn format_float(value: f64, _verb: u8, _precision: i32) -> String {
    format!("{value}")
}
