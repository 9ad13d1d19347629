//! Matrix: a message to a room. The transaction id is made from the event, so sending it again is no second message.

use std::fmt::Write;

use serde_json::json;
use sha1::{Digest, Sha1};

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.url("Matrix homeserver")?;
    if settings.channel.is_empty() {
        return Err(Error::Missing("empty Matrix room (channel)"));
    }
    let transaction: String =
        Sha1::digest(event.to_json()).iter().map(|byte| format!("{byte:02x}")).collect();
    let room = &settings.channel;
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend([
        "_matrix",
        "client",
        "r0",
        "rooms",
        room,
        "send",
        "m.room.message",
        &transaction,
    ]);
    let emoji = if event.is_error() { "🚨" } else { "💫" };
    let mut text = format!("{emoji} {}\n{}\n", event.title(), event.message);
    for (key, value) in &event.metadata {
        let _ = writeln!(text, "- {key}: {value}");
    }
    let body = json!({ "body": text, "msgtype": "m.text" });
    let token = settings.required_token("empty Matrix token")?;
    Ok(vec![Request::json(http::Method::PUT, url, &body).bearer(token)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_room_gets_one_message_for_one_event() {
        let mut settings = settings(ProviderType::Matrix, "https://matrix.example.com/");
        settings.channel = "!room:example.com".to_owned();
        settings.token = "t".to_owned().into();
        let sent = &requests(&failed(), &settings)[0];
        let start =
            "PUT https://matrix.example.com/_matrix/client/r0/rooms/!room:example.com/send/m.room.message/";
        let id = sent.line().strip_prefix(start).unwrap().to_owned();
        assert_eq!((id.len(), sent.value("authorization")), (40, "Bearer t"));
        let text = "🚨 gitrepository/webapp.gitops-system\nmessage\n- summary: A & B\n- test: metadata\n";
        assert_eq!(sent.body_json(), json!({ "body": text, "msgtype": "m.text" }));
        assert!(requests(&failed(), &settings)[0].line().ends_with(&id));
        assert!(!requests(&example(), &settings)[0].line().ends_with(&id));
    }
}
