//! AES in CBC mode with a password for a key, as sprig does it: no salt, no authentication.

use aes::Aes256;
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};

use super::{Answer, base64, string, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::value::{Type, Value};

const S: Type = Type::String;
const BLOCK: usize = 16;

pub const FUNCTIONS: &[Function] =
    &[Function::new("encryptAES", &[S, S], encrypt), Function::new("decryptAES", &[S, S], decrypt)];

/// The password's first 32 bytes, filled up with zeros.
fn key(password: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let length = password.len().min(key.len());
    key[..length].copy_from_slice(&password[..length]);
    key
}

fn encrypt(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (password, plain) = (text_arg(args, 0), text_arg(args, 1));
    if plain.is_empty() {
        return string("");
    }
    ctx.charge(plain.len() * 3)?;
    let mut iv = [0; BLOCK];
    ctx.host().random(&mut iv);
    let padding = BLOCK - plain.len() % BLOCK;
    let mut padded = plain.to_vec();
    padded.resize(plain.len() + padding, padding as u8);
    let encryptor = cbc::Encryptor::<Aes256>::new(&key(password).into(), &iv.into());
    let encrypted = encryptor.encrypt_padded_vec_mut::<NoPadding>(&padded);
    string(base64::encode(&[iv.as_slice(), &encrypted].concat()))
}

fn decrypt(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (password, text) = (text_arg(args, 0), text_arg(args, 1));
    if text.is_empty() {
        return string("");
    }
    ctx.charge(text.len())?;
    let encrypted = base64::decode(text).map_err(|error| Failure::new(error.to_string()))?;
    let Some((iv, body)) = encrypted.split_at_checked(BLOCK) else {
        let length = encrypted.len();
        return Err(Failure::new(format!(
            "runtime error: slice bounds out of range [:16] with capacity {length}"
        )));
    };
    if body.is_empty() {
        return Err(Failure::new("runtime error: index out of range [-1]"));
    }
    let iv: [u8; BLOCK] = iv.try_into().expect("just split there");
    let decryptor = cbc::Decryptor::<Aes256>::new(&key(password).into(), &iv.into());
    let plain = decryptor
        .decrypt_padded_vec_mut::<NoPadding>(body)
        .map_err(|_| Failure::new("crypto/cipher: input not full blocks"))?;
    let padding = usize::from(plain.last().copied().unwrap_or(0));
    match plain.len().checked_sub(padding) {
        Some(length) => string(&plain[..length]),
        None => {
            let end = plain.len() as i64 - padding as i64;
            Err(Failure::new(format!("runtime error: slice bounds out of range [:{end}]")))
        }
    }
}
