//! Standard base32 with Go's complaints, which name the byte.

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let mut group = [0u8; 8];
        group[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(group);
        let digits = (chunk.len() * 8).div_ceil(5);
        for at in 0..8 {
            let symbol = ALPHABET[(bits >> (35 - 5 * at) & 31) as usize];
            out.push(if at < digits { symbol as char } else { '=' });
        }
    }
    out
}

/// `base32.StdEncoding.DecodeString`; the error is Go's text.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let corrupt = |at: usize| format!("illegal base32 data at input byte {at}");
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    let mut at = 0;
    let mut finished = false;
    while at < text.len() && !finished {
        let mut bits = 0u64;
        let mut digits = 0;
        while digits < 8 {
            let Some(&byte) = text.get(at) else { return Err(corrupt(at - digits)) };
            at += 1;
            let left = text.len() - at;
            if byte == b'=' && digits >= 2 && left < 8 {
                if left + digits < 7 {
                    return Err(corrupt(text.len()));
                }
                for more in 0..7 - digits {
                    if text.get(at + more).is_some_and(|&byte| byte != b'=') {
                        return Err(corrupt(at + more - 1));
                    }
                }
                if matches!(digits, 1 | 3 | 6) {
                    return Err(corrupt(at - 1));
                }
                finished = true;
                break;
            }
            let Some(value) = ALPHABET.iter().position(|&symbol| symbol == byte) else {
                return Err(corrupt(at - 1));
            };
            bits = bits << 5 | value as u64;
            digits += 1;
        }
        bits <<= 5 * (8 - digits);
        let count = digits * 5 / 8;
        out.extend_from_slice(&bits.to_be_bytes()[3..3 + count]);
    }
    Ok(out)
}
