//! The output with its column, and the few rules about where a line breaks.

use super::{Dialect, Layout};

/// Beyond this column go-yaml v2 breaks a line at the next space.
const V2_WIDTH: usize = 80;

pub(super) struct Writer {
    pub out: String,
    pub dialect: Dialect,
    pub layout: Layout,
    pub column: usize,
    /// `-1` before the first collection.
    pub indent: isize,
    /// Whether the last character was white space.
    pub whitespace: bool,
    /// Whether the line holds nothing but indentation and `-`, `?`, `:` so far.
    pub indention: bool,
    /// The indentation of the foot comment just written: what follows at it is set off by an empty line.
    pub foot_indent: isize,
}

impl Writer {
    pub fn new(dialect: Dialect, out: String) -> Self {
        Self {
            out,
            dialect,
            layout: Layout::KYAML,
            column: 0,
            indent: -1,
            whitespace: true,
            indention: true,
            foot_indent: -1,
        }
    }

    /// Whether a line this long is to be broken where possible.
    pub fn is_wide(&self) -> bool {
        self.dialect == Dialect::V2 && self.column > V2_WIDTH
    }

    /// How many more characters surely fit before anything is folded.
    pub fn room(&self) -> usize {
        match self.dialect {
            Dialect::V2 => V2_WIDTH.saturating_sub(self.column),
            Dialect::V3 => usize::MAX,
        }
    }

    pub fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    pub fn put_str(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    pub fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        if self.dialect == Dialect::V3 {
            self.indention = true;
        }
    }

    /// Copies a line break of a scalar; a `\n` becomes the line break of the document.
    pub fn copy_break(&mut self, c: char) {
        if c == '\n' {
            self.put_break();
        } else {
            self.out.push(c);
            self.column = 0;
            if self.dialect == Dialect::V3 {
                self.indention = true;
            }
        }
    }

    /// Goes to the indentation of the current collection, on a new line if this one is in use.
    pub fn write_indent(&mut self) {
        let indent = self.indent.max(0);
        let target = indent.unsigned_abs();
        if !self.indention || self.column > target || (self.column == target && !self.whitespace) {
            self.put_break();
        }
        if self.foot_indent == indent {
            self.put_break();
        }
        const SPACES: &str = "                                                                ";
        while self.column < target {
            let count = (target - self.column).min(SPACES.len());
            self.out.push_str(&SPACES[..count]);
            self.column += count;
        }
        self.whitespace = true;
        if self.dialect == Dialect::V2 {
            self.indention = true;
        }
        self.foot_indent = -1;
    }

    /// An indicator such as `-` or `:`, with a space before it if one is needed.
    pub fn indicator(&mut self, text: &str, needs_space: bool, is_whitespace: bool, is_indention: bool) {
        if needs_space && !self.whitespace {
            self.put(' ');
        }
        self.put_str(text);
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    /// A comment of one or more lines; lines without `#` get one.
    pub fn comment(&mut self, text: &str) {
        let (mut breaks, mut pound) = (false, false);
        for c in text.chars() {
            if super::analysis::is_break(c) {
                self.copy_break(c);
                (breaks, pound) = (true, false);
                continue;
            }
            if breaks {
                self.write_indent();
            }
            if !pound {
                if c != '#' {
                    self.put_str("# ");
                }
                pound = true;
            }
            self.put(c);
            self.indention = false;
            breaks = false;
        }
        if !breaks {
            self.put_break();
        }
        self.whitespace = true;
    }
}
