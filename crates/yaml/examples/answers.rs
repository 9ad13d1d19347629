//! Answers a JSON array of base64 texts on stdin with a JSON array on stdout, as `baseline/main.go -` does:
//! to compare this crate with the Go libraries on any number of inputs.
#![allow(clippy::disallowed_methods)]

use std::io::Read;

#[path = "../tests/answers/mod.rs"]
mod answers;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let questions: Vec<String> =
        serde_json::from_str::<serde_json::Value>(&input)?.as_array().map_or(Vec::new(), |texts| {
            texts.iter().filter_map(|text| text.as_str()).map(str::to_owned).collect()
        });
    let answered: Vec<serde_json::Value> = questions
        .iter()
        .map(|question| {
            let text = decode_base64(question);
            answers::QUESTIONS
                .iter()
                .map(|name| ((*name).to_owned(), serde_json::Value::String(answers::answer(name, &text))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .collect();
    println!("{}", serde_json::Value::Array(answered));
    Ok(())
}

fn decode_base64(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0usize, 0, Vec::new());
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | alphabet.iter().position(|symbol| *symbol == byte).unwrap_or(0);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}
