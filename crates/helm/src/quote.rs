//! Go's `%q`, for error texts.

pub(crate) fn go_quote(text: &str) -> String {
    gotemplate::quote(text.as_bytes())
}
