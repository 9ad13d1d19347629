//! Every recorded request is answered as the real kube-apiserver answered it, after masking.
//!
//! `TRANSCRIPT=name` runs one file. Known differences are listed in `cases/differences.txt`, each with its reason; one
//! that no longer differs fails the test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod transcript;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use apiserver::{Handle, Server, User};
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;
use transcript::{Answer, Exchange, Memory};

async fn send(server: &Handle, exchange: &Exchange, memory: &Memory) -> (u16, Vec<String>, Vec<u8>) {
    let mut request =
        http::Request::builder().method(exchange.method.as_str()).uri(memory.fill(&exchange.path));
    let mut service = server.service_as(User::new("admin", &["system:masters", "system:authenticated"]));
    for (key, value) in &exchange.headers {
        request = request.header(key, value);
        if key.eq_ignore_ascii_case("authorization") {
            let mut alice = User::new("alice", &["dev", "system:authenticated"]);
            alice.uid = "alice-uid".into();
            service = server.service_as(alice);
        }
    }
    let body = Full::new(bytes::Bytes::from(memory.fill(&exchange.body)));
    let response =
        service.oneshot(request.header("user-agent", "transcript/1").body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings =
        response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    (code, warnings, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn answer(server: &Handle, exchange: &Exchange, memory: &mut Memory) -> Option<Answer> {
    for _ in 0..100 {
        let (code, warnings, bytes) = send(server, exchange, memory).await;
        match exchange.wait {
            Some(wanted) if code == wanted => return None,
            Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            None => {
                let body = transcript::read_body(exchange.path.contains("watch=1"), &bytes);
                memory.remember(&body);
                return Some(Answer { code, warnings, body: transcript::mask(&body) });
            }
        }
    }
    panic!("{}: never answered {:?}", exchange.path, exchange.wait);
}

fn differences(folder: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join("differences.txt")).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.split_once(" -- ").expect("`file: title -- reason`"))
        .map(|(case, why)| (case.to_owned(), why.to_owned()))
        .collect()
}

#[tokio::test]
async fn recorded_requests_are_answered_as_the_real_server_answered_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let only = std::env::var("TRANSCRIPT").ok();
    let known = differences(&folder);
    let (mut passed, mut differing, mut failures) = (0, 0, Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "http"));
    files.sort();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let server = Server::builder().publish_ca(false).start().await.unwrap();
        let mut memory = Memory::default();
        for exchange in transcript::parse(&std::fs::read_to_string(&file).unwrap()) {
            let got = answer(&server, &exchange, &mut memory).await;
            // Masks grow; answers recorded with fewer of them are masked again.
            let mut exchange = exchange;
            if let Some(recorded) = &mut exchange.answer {
                recorded.body = transcript::mask(&recorded.body);
            }
            let case = format!("{name}: {}", exchange.title);
            match (got == exchange.answer, known.contains_key(&case)) {
                (true, false) => passed += 1,
                (false, true) => differing += 1,
                (true, true) => {
                    failures.push(format!("{case}\n  no longer differs: take it off differences.txt"))
                }
                (false, false) => failures.push(transcript::difference(&case, &exchange, &got)),
            }
        }
        server.shutdown();
    }
    println!("transcripts: {passed} passed, {differing} known differences, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
