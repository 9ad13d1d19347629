//! Git's packet lines: four hex digits of length, then the payload.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::Error;

/// The longest packet Git allows, its length included.
const LONGEST: usize = 65_520;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Line(Vec<u8>),
    Flush,
    Delimiter,
    ResponseEnd,
}

impl Packet {
    /// The payload as text without its line feed; `None` for the special packets.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Packet::Line(bytes) => std::str::from_utf8(bytes).ok().map(|text| text.trim_end_matches('\n')),
            Packet::Flush | Packet::Delimiter | Packet::ResponseEnd => None,
        }
    }
}

pub(super) async fn read(reader: &mut (dyn AsyncRead + Send + Unpin)) -> Result<Packet, Error> {
    let mut header = [0; 4];
    reader.read_exact(&mut header).await.map_err(Error::cut)?;
    let length = std::str::from_utf8(&header)
        .ok()
        .and_then(|text| usize::from_str_radix(text, 16).ok())
        .ok_or_else(|| Error::Garbage("a packet length that is not hexadecimal".to_owned()))?;
    match length {
        0 => Ok(Packet::Flush),
        1 => Ok(Packet::Delimiter),
        2 => Ok(Packet::ResponseEnd),
        3 => Err(Error::Garbage("a packet of length 3".to_owned())),
        _ if length > LONGEST => Err(Error::Garbage(format!("a packet of {length} bytes"))),
        _ => {
            let mut payload = vec![0; length - 4];
            reader.read_exact(&mut payload).await.map_err(Error::cut)?;
            Ok(Packet::Line(payload))
        }
    }
}

/// A request, built line by line.
#[derive(Default)]
pub(super) struct Request(Vec<u8>);

impl Request {
    pub(super) fn line(mut self, text: &str) -> Self {
        self.0.extend_from_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
        self
    }

    /// A packet with exactly these bytes.
    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(format!("{:04x}", bytes.len() + 4).as_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn delimiter(mut self) -> Self {
        self.0.extend_from_slice(b"0001");
        self
    }

    pub(super) fn flush(mut self) -> Self {
        self.0.extend_from_slice(b"0000");
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut bytes: &[u8]) -> Vec<Result<Packet, String>> {
        let mut packets = Vec::new();
        while !bytes.is_empty() {
            let packet = read(&mut bytes).await.map_err(|error| error.to_string());
            let failed = packet.is_err();
            packets.push(packet);
            if failed {
                break;
            }
        }
        packets
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let bytes = Request::default().line("want abc").delimiter().line("done").flush().into_bytes();
        let packets: Vec<_> = all(&bytes).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            packets,
            [
                Packet::Line(b"want abc\n".to_vec()),
                Packet::Delimiter,
                Packet::Line(b"done\n".to_vec()),
                Packet::Flush
            ]
        );
    }

    #[tokio::test]
    async fn nonsense_is_an_error() {
        assert!(all(b"zzzz").await[0].is_err());
        assert!(all(b"0003").await[0].is_err());
        assert!(all(b"ffff").await[0].is_err());
        assert!(all(b"0010short").await[0].is_err());
    }
}
