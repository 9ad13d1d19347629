//! The text that Zulip shows and that comments on pull requests hold.

use std::fmt::Write;

use flux_api::names::EventMetadata;

use crate::notification::event::Event;

pub(super) fn text(event: &Event) -> String {
    let emoji = if event.is_error() { "⚠️" } else { "ℹ️" };
    let mut text =
        format!("## Flux Status\n\n{emoji} {}\n\n{}\n\nMetadata:\n", event.object(), event.message);
    for (key, value) in &event.metadata {
        if key != EventMetadata::ChangeRequest.as_str() {
            let _ = writeln!(text, "* `{key}`: {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::tests::failed;

    #[test]
    fn the_change_request_itself_is_not_mentioned() {
        let mut event = failed();
        event.metadata.insert("change_request".to_owned(), "7".to_owned());
        let expected = "## Flux Status\n\n⚠️ GitRepository/gitops-system/webapp\n\nmessage\n\nMetadata:\n* `summary`: A & B\n* `test`: metadata\n";
        assert_eq!(text(&event), expected);
    }
}
