//! Writes messages of protobuf: fields one after the other, each with its number. As much of it as spans need.

/// A message that is being written. What is empty or zero is left out, as the format has it.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn text(self, number: u64, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    pub(super) fn bytes(self, number: u64, bytes: &[u8]) -> Self {
        if bytes.is_empty() { self } else { self.field(number, bytes) }
    }

    pub(super) fn message(self, number: u64, message: Message) -> Self {
        self.field(number, &message.0)
    }

    /// Bytes that are written even if there are none: one of several fields that could stand here.
    pub(super) fn field(mut self, number: u64, bytes: &[u8]) -> Self {
        self.varint((number << 3) | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn number(mut self, number: u64, value: u64) -> Self {
        if value != 0 {
            self.varint((number << 3) | VARINT);
            self.varint(value);
        }
        self
    }

    pub(super) fn fixed64(mut self, number: u64, value: u64) -> Self {
        if value != 0 {
            self.varint((number << 3) | FIXED64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_has_it() {
        // The examples of the format's own documentation.
        assert_eq!(Message::default().number(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing").into_bytes();
        assert_eq!(text, [&[0x12, 0x07], &b"testing"[..]].concat());
        let inner = Message::default().message(3, Message::default().number(1, 150)).into_bytes();
        assert_eq!(inner, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().fixed64(7, 1).into_bytes(), [0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        let nothing = Message::default().text(1, "").number(2, 0).fixed64(3, 0).bytes(4, &[]);
        assert!(nothing.into_bytes().is_empty());
        assert_eq!(Message::default().field(1, &[]).into_bytes(), [0x0a, 0]);
        assert_eq!(Message::default().text(100, "x").into_bytes(), [0xa2, 0x06, 1, b'x']);
    }
}
