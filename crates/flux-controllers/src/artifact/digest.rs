//! Digests of artifacts, in the algorithm that `--artifact-digest-algo` chose or that a digest names.

use std::io::{self, Read, Write};

use flux_api::digest::{Algorithm, Digest};

/// A digest in the making.
pub enum Hasher {
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha384(sha2::Sha384),
    Sha512(sha2::Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    pub fn new(algorithm: Algorithm) -> Self {
        use sha2::Digest as _;
        match algorithm {
            Algorithm::Sha1 => Hasher::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Sha384 => Hasher::Sha384(sha2::Sha384::new()),
            Algorithm::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
            Algorithm::Blake3 => Hasher::Blake3(Box::new(blake3::Hasher::new())),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        use sha2::Digest as _;
        match self {
            Hasher::Sha1(hash) => hash.update(bytes),
            Hasher::Sha256(hash) => hash.update(bytes),
            Hasher::Sha384(hash) => hash.update(bytes),
            Hasher::Sha512(hash) => hash.update(bytes),
            Hasher::Blake3(hash) => {
                hash.update(bytes);
            }
        }
    }

    pub fn finish(self) -> Digest {
        use sha2::Digest as _;
        let (algorithm, bytes) = match self {
            Hasher::Sha1(hash) => (Algorithm::Sha1, hash.finalize().to_vec()),
            Hasher::Sha256(hash) => (Algorithm::Sha256, hash.finalize().to_vec()),
            Hasher::Sha384(hash) => (Algorithm::Sha384, hash.finalize().to_vec()),
            Hasher::Sha512(hash) => (Algorithm::Sha512, hash.finalize().to_vec()),
            Hasher::Blake3(hash) => (Algorithm::Blake3, hash.finalize().as_bytes().to_vec()),
        };
        Digest::new(algorithm, &hex(&bytes)).expect("a digest has as many digits as its algorithm makes")
    }
}

/// The digest of everything in `input`.
pub fn of(algorithm: Algorithm, mut input: impl Read) -> io::Result<Digest> {
    let mut hashing = Hashing::new(io::sink(), algorithm);
    io::copy(&mut input, &mut hashing)?;
    Ok(hashing.into_parts().1)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Counts and hashes what passes through.
pub struct Hashing<W> {
    out: W,
    hash: Hasher,
    size: u64,
}

impl<W> Hashing<W> {
    pub fn new(out: W, algorithm: Algorithm) -> Self {
        Self { out, hash: Hasher::new(algorithm), size: 0 }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// What was written to, the digest and the number of bytes.
    pub fn into_parts(self) -> (W, Digest, u64) {
        (self.out, self.hash.finish(), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_gives_its_known_answer() {
        for (algorithm, answer) in [
            (Algorithm::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                Algorithm::Sha384,
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                Algorithm::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (Algorithm::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ] {
            let digest = of(algorithm, &b"abc"[..]).unwrap();
            assert_eq!(digest.as_str(), format!("{algorithm}:{answer}"));
        }
    }
}
