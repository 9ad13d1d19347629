//! Digests and passwords.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::{Answer, string, text_arg};
use crate::context::Context;
use crate::function::Function;
use crate::value::{Type, Value};

const S: Type = Type::String;

pub const FUNCTIONS: &[Function] = &[
    Function::new("sha1sum", &[S], |_, args| string(hex(&Sha1::digest(text_arg(args, 0))))),
    Function::new("sha256sum", &[S], |_, args| string(hex(&Sha256::digest(text_arg(args, 0))))),
    Function::new("sha512sum", &[S], |_, args| string(hex(&Sha512::digest(text_arg(args, 0))))),
    Function::new("adler32sum", &[S], |_, args| string(adler32(text_arg(args, 0)).to_string())),
    Function::new("bcrypt", &[S], |ctx, args| string(bcrypt(ctx, text_arg(args, 0))?)),
    Function::new("htpasswd", &[S, S], htpasswd),
    Function::new("derivePassword", &[Type::Uint32, S, S, S, S], derive_password),
];

/// Steps that a deliberately slow hash counts for, so that a loop of them ends soon.
const SLOW: u64 = 600_000;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn adler32(text: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut a, mut b) = (1u32, 0u32);
    // As many bytes as fit before the sums overflow.
    for chunk in text.chunks(5552) {
        for &byte in chunk {
            a += u32::from(byte);
            b += a;
        }
        a %= MODULUS;
        b %= MODULUS;
    }
    b << 16 | a
}

fn bcrypt(ctx: &Context<'_>, password: &[u8]) -> Result<String, crate::context::Failure> {
    const COST: u32 = 10;
    ctx.work(SLOW)?;
    if password.len() > 72 {
        let error = "bcrypt: password length exceeds 72 bytes";
        return Ok(format!("failed to encrypt string with bcrypt: {error}"));
    }
    let mut salt = [0; 16];
    ctx.host().random(&mut salt);
    Ok(match ::bcrypt::hash_with_salt(password, COST, salt) {
        Ok(parts) => parts.format_for_version(::bcrypt::Version::TwoA),
        Err(error) => format!("failed to encrypt string with bcrypt: {error}"),
    })
}

fn htpasswd(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let user = String::from_utf8_lossy(text_arg(args, 0));
    if user.contains(':') {
        return string(format!("invalid username: {user}"));
    }
    string(format!("{user}:{}", bcrypt(ctx, text_arg(args, 1))?))
}

/// Which classes of characters the passwords of a type are made of.
fn password_templates(kind: &[u8]) -> Option<&'static [&'static str]> {
    Some(match kind {
        b"maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        b"long" => &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
        b"medium" => &["CvcnoCvc", "CvcCvcno"],
        b"short" => &["Cvcn"],
        b"basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        b"pin" => &["nnnn"],
        _ => return None,
    })
}

fn password_characters(class: u8) -> &'static [u8] {
    match class {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'A' => b"AEIOUBCDFGHJKLMNPQRSTVWXYZ",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// The Master Password algorithm: the same password for the same site, every time.
fn derive_password(ctx: &Context<'_>, args: &[Value]) -> Answer {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    ctx.work(SLOW)?;
    let Some(templates) = password_templates(text_arg(args, 1)) else {
        let kind = String::from_utf8_lossy(text_arg(args, 1));
        return string(format!("cannot find password template {kind}"));
    };
    let (password, user, site) = (text_arg(args, 2), text_arg(args, 3), text_arg(args, 4));
    let counter = args[0].as_uint().unwrap_or(0) as u32;
    let sized = |text: &[u8]| [SEED, &(text.len() as u32).to_be_bytes(), text].concat();
    let mut key = [0; 64];
    let derived = scrypt::Params::new(15, 8, 2, 64).map_err(|error| error.to_string()).and_then(|params| {
        scrypt::scrypt(password, &sized(user), &params, &mut key).map_err(|e| e.to_string())
    });
    if let Err(error) = derived {
        return string(format!("failed to derive password: {error}"));
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("an HMAC key has any length");
    mac.update(&sized(site));
    mac.update(&counter.to_be_bytes());
    let seed = mac.finalize().into_bytes();
    let template = templates[usize::from(seed[0]) % templates.len()];
    let characters = template.bytes().enumerate().map(|(at, class)| {
        let choices = password_characters(class);
        choices[usize::from(seed[at + 1]) % choices.len()]
    });
    string(characters.collect::<Vec<u8>>())
}
