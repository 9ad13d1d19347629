//! Letter case and words: goutils' and xstrings' rules, which differ from each other.

use crate::unicode::{
    REPLACEMENT, decode_rune, is_letter, is_lower, is_number, is_punct, is_space, is_title, is_upper,
    map_runes, push_rune, runes, to_lower, to_title, to_upper,
};

/// goutils' `Uncapitalize`: the first letter of each word.
pub fn untitle(text: &[u8]) -> Vec<u8> {
    let mut starts = true;
    map_runes(text, |rune| {
        if is_space(rune) {
            starts = true;
            return rune;
        }
        if std::mem::take(&mut starts) { to_lower(rune) } else { rune }
    })
}

/// goutils' `SwapCase`: lower case at the start of a word becomes title case.
pub fn swap(text: &[u8]) -> Vec<u8> {
    let mut after_space = true;
    map_runes(text, |rune| {
        if is_upper(rune) || is_title(rune) {
            after_space = false;
            return to_lower(rune);
        }
        if is_lower(rune) {
            return if std::mem::take(&mut after_space) { to_title(rune) } else { to_upper(rune) };
        }
        after_space = is_space(rune);
        rune
    })
}

/// goutils' `Initials`: the first byte of each word, taken for a rune.
pub fn initials(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut starts = true;
    for &byte in text {
        if is_space(char::from(byte)) {
            starts = true;
        } else if std::mem::take(&mut starts) {
            push_rune(&mut out, u32::from(byte));
        }
    }
    out
}

fn is_connector(rune: char) -> bool {
    rune == '-' || rune == '_' || is_space(rune)
}

/// xstrings' `ToPascalCase`.
pub fn pascal(text: &[u8]) -> Vec<u8> {
    let runes: Vec<char> = runes(text).map(|(_, rune, _)| rune).collect();
    let mut out = Vec::with_capacity(text.len());
    let mut push = |rune: char| push_rune(&mut out, rune as u32);
    // Leading connectors stay.
    let leading = runes.iter().take_while(|&&rune| is_connector(rune)).count();
    let Some(&first) = runes.get(leading) else {
        // Nothing but connectors: the last one is written twice, as xstrings does.
        runes.iter().for_each(|&rune| push(rune));
        if let Some(&last) = runes.last() {
            push(last);
        }
        return out;
    };
    runes[..leading].iter().for_each(|&rune| push(rune));
    let mut first_is_upper = is_upper(first);
    let mut current = to_upper(first);
    for &rune in &runes[leading + 1..] {
        let previous = std::mem::replace(&mut current, rune);
        if is_connector(current) && is_connector(previous) {
            push(previous);
            continue;
        }
        if is_connector(previous) {
            first_is_upper = is_upper(current);
            current = to_upper(current);
            continue;
        }
        if first_is_upper {
            if is_upper(current) {
                current = to_lower(current);
            } else {
                first_is_upper = false;
            }
        }
        push(previous);
    }
    push(current);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Invalid,
    Number,
    Upper,
    Alphabet,
    Connector,
    Punct,
    Other,
}

/// xstrings' `ToSnakeCase` and `ToKebabCase`.
pub fn separated(text: &[u8], connector: char) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    if text.is_empty() {
        return out;
    }
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Word::Connector {
            push_lower(&mut out, kind, word, connector);
        }
        let (previous, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match previous {
            Word::Number => {
                while matches!(kind, Word::Alphabet | Word::Number) {
                    push_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Invalid | Word::Punct | Word::Connector) {
                    push_rune(&mut out, connector as u32);
                }
            }
            Word::Connector => push_lower(&mut out, previous, last, connector),
            Word::Punct => {}
            _ => {
                if kind != Word::Number {
                    if !matches!(kind, Word::Connector | Word::Punct) {
                        push_rune(&mut out, connector as u32);
                    }
                    continue;
                }
                if rest.is_empty() {
                    continue;
                }
                let number = word;
                (kind, word, rest) = next_word(rest);
                // A number belongs to the word before it: Bld4Floor is bld4_floor.
                if kind != Word::Alphabet {
                    push_lower(&mut out, Word::Number, number, connector);
                    if !matches!(kind, Word::Connector | Word::Punct) {
                        push_rune(&mut out, connector as u32);
                    }
                    continue;
                }
                // Unless lower case letters follow: HTTP2xx is http_2xx.
                push_rune(&mut out, connector as u32);
                push_lower(&mut out, Word::Number, number, connector);
                while matches!(kind, Word::Alphabet | Word::Number) {
                    push_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Invalid | Word::Connector | Word::Punct) {
                    push_rune(&mut out, connector as u32);
                }
            }
        }
    }
    push_lower(&mut out, kind, word, connector);
    out
}

fn is_alphabet(rune: char) -> bool {
    if !is_letter(rune) {
        return false;
    }
    // Chinese, Japanese and Korean ideographs have no case and no alphabet.
    !matches!(rune, '\u{4e00}'..='\u{9fcc}' | '\u{3400}'..='\u{4d85}' | '\u{20000}'..='\u{2b81d}')
}

/// The next rune that is valid, and how many bytes lead up to and include it.
fn next_valid(text: &[u8], previous: char) -> (char, usize) {
    let mut size = 0;
    while size < text.len() {
        let (rune, length) = decode_rune(&text[size..]);
        size += length;
        if rune != REPLACEMENT {
            return (rune, size);
        }
    }
    (previous, size)
}

fn next_word(text: &[u8]) -> (Word, &[u8], &[u8]) {
    if text.is_empty() {
        return (Word::Invalid, b"", b"");
    }
    let (first, mut offset) = next_valid(text, REPLACEMENT);
    if first == REPLACEMENT {
        return (Word::Invalid, &text[..offset], &text[offset..]);
    }
    let kind = if is_connector(first) {
        offset = take(text, offset, first, is_connector);
        Word::Connector
    } else if is_punct(first) {
        offset = take(text, offset, first, is_punct);
        Word::Punct
    } else if is_upper(first) {
        offset = upper_word(text, offset, first);
        Word::Upper
    } else if is_alphabet(first) {
        offset = take(text, offset, first, |rune| is_alphabet(rune) && !is_upper(rune));
        Word::Alphabet
    } else if is_number(first) {
        offset = take(text, offset, first, is_number);
        Word::Number
    } else {
        offset = take(text, offset, first, |rune| {
            !(is_connector(rune) || is_alphabet(rune) || is_number(rune) || is_punct(rune))
        });
        Word::Other
    };
    (kind, &text[..offset], &text[offset..])
}

/// Where a run of runes that fit ends.
fn take(text: &[u8], mut offset: usize, mut rune: char, fits: impl Fn(char) -> bool) -> usize {
    while offset < text.len() {
        let size;
        (rune, size) = next_valid(&text[offset..], rune);
        if !fits(rune) {
            break;
        }
        offset += size;
    }
    offset
}

/// `HTTP` of `HTTPStatus`, or `Status`.
fn upper_word(text: &[u8], mut offset: usize, first: char) -> usize {
    if offset == text.len() {
        return offset;
    }
    let (mut rune, mut size) = next_valid(&text[offset..], first);
    if is_upper(rune) {
        let mut last = size;
        offset += size;
        while offset < text.len() {
            (rune, size) = next_valid(&text[offset..], rune);
            if !is_upper(rune) {
                break;
            }
            last = size;
            offset += size;
        }
        // The last capital begins the next word.
        if offset < text.len() && is_alphabet(rune) {
            offset -= last;
        }
        return offset;
    }
    if is_alphabet(rune) {
        offset = take(text, offset + size, rune, |rune| is_alphabet(rune) && !is_upper(rune));
    }
    offset
}

fn push_lower(out: &mut Vec<u8>, kind: Word, word: &[u8], connector: char) {
    if !matches!(kind, Word::Upper | Word::Connector) {
        return out.extend_from_slice(word);
    }
    out.extend(map_runes(word, |rune| {
        if is_connector(rune) {
            connector
        } else if is_upper(rune) {
            to_lower(rune)
        } else {
            rune
        }
    }));
}
