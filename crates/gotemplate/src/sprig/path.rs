//! Slash-separated paths; `os…` are the same, since Helm runs on Unix here.

use super::{string, text_arg};
use crate::function::Function;
use crate::value::{Type, Value};

const S: &[Type] = &[Type::String];

pub const FUNCTIONS: &[Function] = &[
    Function::new("base", S, |_, args| string(base(text_arg(args, 0)))),
    Function::new("dir", S, |_, args| string(dir(text_arg(args, 0)))),
    Function::new("clean", S, |_, args| string(clean(text_arg(args, 0)))),
    Function::new("ext", S, |_, args| string(ext(text_arg(args, 0)))),
    Function::new("isAbs", S, |_, args| Ok(Value::Bool(text_arg(args, 0).starts_with(b"/")))),
    Function::new("osBase", S, |_, args| string(base(text_arg(args, 0)))),
    Function::new("osDir", S, |_, args| string(dir(text_arg(args, 0)))),
    Function::new("osClean", S, |_, args| string(clean(text_arg(args, 0)))),
    Function::new("osExt", S, |_, args| string(ext(text_arg(args, 0)))),
    Function::new("osIsAbs", S, |_, args| Ok(Value::Bool(text_arg(args, 0).starts_with(b"/")))),
];

fn base(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        _ if path.is_empty() => b"/",
        Some(slash) => &path[slash + 1..],
        None => path,
    }
}

fn dir(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    clean(&path[..end])
}

fn ext(path: &[u8]) -> &[u8] {
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match path[name..].iter().rposition(|&byte| byte == b'.') {
        Some(dot) => &path[name + dot..],
        None => b"",
    }
}

/// `path.Clean`: no empty elements, no `.`, and `..` resolved as far as it can be.
fn clean(path: &[u8]) -> Vec<u8> {
    let rooted = path.starts_with(b"/");
    let mut kept: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match kept.last() {
                Some(&last) if last != b".." => {
                    kept.pop();
                }
                _ if rooted => {}
                _ => kept.push(part),
            },
            _ => kept.push(part),
        }
    }
    let joined = kept.join(&b'/');
    match (rooted, joined.is_empty()) {
        (true, _) => [b"/", joined.as_slice()].concat(),
        (false, true) => b".".to_vec(),
        (false, false) => joined,
    }
}
