//! What callers build on: parsed templates travel between threads, certificates verify, times and lists behave.

#![allow(clippy::disallowed_methods)]

mod support;

use std::sync::Arc;

use gotemplate::{ErrorKind, Functions, Limits, Numbers, Session, Set, Template, Value};
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPublicKey};
use support::TestHost;

fn render(text: &str) -> String {
    let mut set = Set::new(Functions::sprig().shared());
    let template = set.parse("t", text).expect("a template");
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    let output = Arc::new(set).execute_template(&session, &template, &Value::Nil).expect("it renders");
    String::from_utf8(output).expect("it is text")
}

#[test]
fn parsed_templates_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Set>();
    shared::<Template>();
    shared::<Functions>();
}

#[test]
fn a_set_that_extends_another_sees_and_hides_its_templates() {
    let mut parent = Set::new(Functions::builtin().shared());
    parent.parse("a", "A[{{template \"b\"}}]").expect("a template");
    parent.parse("b", "old").expect("a template");
    let parent = Arc::new(parent);
    let mut child = parent.extend();
    let root = child.parse("t", "{{template \"a\"}}{{define \"b\"}}new{{end}}").expect("a template");
    let child = Arc::new(child);
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    let output = child.execute_template(&session, &root, &Value::Nil).expect("it renders");
    assert_eq!(output, b"A[new]");
    assert_eq!(parent.execute(&session, "a", &Value::Nil).expect("it renders"), b"A[old]");
}

#[test]
fn errors_say_which_phase_failed() {
    let mut set = Set::new(Functions::builtin().shared());
    assert_eq!(set.parse("t", "{{").err().map(|error| error.kind()), Some(ErrorKind::Parse));
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    let set = Arc::new(set);
    let missing = set.execute(&session, "nope", &Value::Nil).expect_err("there is no such template");
    assert_eq!(missing.kind(), ErrorKind::NoTemplate);
}

#[test]
fn values_go_to_json_and_back() {
    let json = serde_json::json!({ "a": [1, 2.5, null, "x", true], "b": { "c": {} } });
    for numbers in [Numbers::Float, Numbers::Int, Numbers::Int64] {
        assert_eq!(Value::from_json(&json, numbers).to_json(), Ok(json.clone()));
    }
}

#[test]
fn a_signed_certificate_holds_its_own_key_and_the_authoritys_signature() {
    let text = render(
        "{{$ca := genCA \"ca\" 10}}{{$c := genSignedCert \"host\" (list \"10.0.0.1\") (list \"a.b\") 5 $ca}}\
         {{$ca.Key}}@{{$c.Cert}}@{{$c.Key}}",
    );
    let parts: Vec<&str> = text.split('@').collect();
    let key = |pem: &str| rsa::RsaPrivateKey::from_pkcs1_pem(pem).expect("an RSA key").to_public_key();
    let certificate = pem_bytes(parts[1]);
    let own = key(parts[2]).to_pkcs1_der().expect("a public key");
    assert!(certificate.windows(own.as_bytes().len()).any(|window| window == own.as_bytes()));
    // SEQUENCE { body, algorithm, BIT STRING { 0, signature } }: both lengths take two bytes.
    let body_length = usize::from(certificate[6]) << 8 | usize::from(certificate[7]);
    let body = &certificate[4..8 + body_length];
    let signature = &certificate[certificate.len() - 256..];
    let digest = <sha2::Sha256 as sha2::Digest>::digest(body);
    let prefix = [48, 49, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 1, 5, 0, 4, 32];
    let signed = [prefix.as_slice(), digest.as_slice()].concat();
    key(parts[0])
        .verify(rsa::Pkcs1v15Sign::new_unprefixed(), &signed, signature)
        .expect("the authority signed it");
}

fn pem_bytes(pem: &str) -> Vec<u8> {
    use base64::Engine;
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    base64::engine::general_purpose::STANDARD.decode(text).expect("PEM is base64")
}

#[test]
fn many_texts_parse_as_one_by_one_would() {
    // Enough text for a second thread, which the two definitions then come from.
    let filler = "x".repeat(400_000);
    let texts = [
        ("a", r#"{{ define "d" }}first{{ end }}"#),
        ("long", &filler),
        ("b", r#"{{ define "d" }}last{{ end }}"#),
    ];
    let mut set = Set::new(Functions::sprig().shared());
    set.parse_all(&texts).map_err(|(_, error)| error).expect("they parse");
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    assert_eq!(Arc::new(set).execute(&session, "d", &Value::Nil).expect("it renders"), b"last");

    let broken = [("fine", "x"), ("first", "{{ if }}"), ("long", &filler), ("second", "{{ end }}")];
    let (at, error) = Set::new(Functions::sprig().shared()).parse_all(&broken).expect_err("two are broken");
    assert_eq!(at, 1);
    assert!(error.to_string().contains("first:1"), "{error}");
}
