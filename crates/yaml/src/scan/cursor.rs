//! Reading on: bytes, columns, and what counts as a line break.

use super::{Mark, Scanner};

impl<'a> Scanner<'a> {
    pub(super) fn mark(&self) -> Mark {
        // Inputs are shorter than this can count.
        Mark { index: i32::try_from(self.pos).unwrap_or(i32::MAX), line: self.line, column: self.column }
    }

    /// The byte `offset` ahead, 0 behind the end. The text itself holds no 0.
    pub(super) fn at(&self, offset: usize) -> u8 {
        self.bytes.get(self.pos + offset).copied().unwrap_or(0)
    }

    pub(super) fn is_break(&self, offset: usize) -> bool {
        match self.at(offset) {
            b'\n' | b'\r' => true,
            0xc2 => self.at(offset + 1) == 0x85,
            0xe2 => self.at(offset + 1) == 0x80 && matches!(self.at(offset + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    pub(super) fn is_blank(&self, offset: usize) -> bool {
        matches!(self.at(offset), b' ' | b'\t')
    }

    /// A line break or the end.
    pub(super) fn is_break_or_end(&self, offset: usize) -> bool {
        self.at(offset) == 0 || self.is_break(offset)
    }

    /// A space, a tab, a line break or the end.
    pub(super) fn is_blank_or_end(&self, offset: usize) -> bool {
        matches!(self.at(offset), b' ' | b'\t' | 0) || self.is_break(offset)
    }

    /// `---` or `...` with nothing behind it; only looked for at the start of a line.
    pub(super) fn at_document_indicator(&self) -> bool {
        let rest = &self.bytes[self.pos.min(self.bytes.len())..];
        (rest.starts_with(b"---") || rest.starts_with(b"...")) && self.is_blank_or_end(3)
    }

    /// Passes characters of one byte that are not blank.
    pub(super) fn skip_ascii(&mut self, count: u32) {
        self.newlines = 0;
        self.pos += count as usize;
        self.column += count;
    }

    pub(super) fn skip_blank(&mut self) {
        self.pos += 1;
        self.column += 1;
    }

    /// Passes `bytes` bytes of one line.
    pub(super) fn skip_text(&mut self, bytes: usize) {
        let passed = &self.text[self.pos..self.pos + bytes];
        let chars = if passed.is_ascii() { passed.len() } else { passed.chars().count() };
        if passed.bytes().any(|byte| !matches!(byte, b' ' | b'\t')) {
            self.newlines = 0;
        }
        self.pos += bytes;
        self.column += u32::try_from(chars).unwrap_or(u32::MAX);
    }

    /// How many bytes there are up to the next line break or the end.
    pub(super) fn bytes_to_line_end(&self) -> usize {
        let rest = &self.bytes[self.pos.min(self.bytes.len())..];
        let mut from = 0;
        while let Some(found) =
            rest[from..].iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2))
        {
            let at = from + found;
            if self.is_break(at) {
                return at;
            }
            from = at + 1;
        }
        rest.len()
    }

    pub(super) fn skip_to_line_end(&mut self) {
        self.skip_text(self.bytes_to_line_end());
    }

    /// Passes a line break, if there is one.
    pub(super) fn skip_line(&mut self) {
        let width = self.break_width();
        if width > 0 {
            self.pos += width;
            self.column = 0;
            self.line += 1;
            self.newlines += 1;
        }
    }

    /// Reads a line break into `out`; all but the two separators of Unicode become `\n`.
    pub(super) fn read_line(&mut self, out: &mut String) {
        match self.break_width() {
            0 => return,
            3 => out.push_str(&self.text[self.pos..self.pos + 3]),
            _ => out.push('\n'),
        }
        self.skip_line();
    }

    fn break_width(&self) -> usize {
        match self.at(0) {
            b'\r' if self.at(1) == b'\n' => 2,
            b'\r' | b'\n' => 1,
            0xc2 if self.is_break(0) => 2,
            0xe2 if self.is_break(0) => 3,
            _ => 0,
        }
    }

    /// Passes letters, digits, `_` and `-`.
    pub(super) fn read_word(&mut self) -> &'a str {
        let start = self.pos;
        let rest = &self.bytes[start.min(self.bytes.len())..];
        let count = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            .count();
        if count > 0 {
            self.skip_ascii(u32::try_from(count).unwrap_or(u32::MAX));
        }
        &self.text[start..start + count]
    }
}
