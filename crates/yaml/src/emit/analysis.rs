//! Which styles a scalar's text allows.

use super::Dialect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Analysis {
    pub multiline: bool,
    pub flow_plain_allowed: bool,
    pub block_plain_allowed: bool,
    pub single_quoted_allowed: bool,
    pub block_allowed: bool,
}

/// What a byte inside a text of one line asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Can stand anywhere but at the start or the end.
    Ordinary,
    /// Cannot stand plain in a flow collection.
    Flow,
    Colon,
    Hash,
    /// Anything that needs a closer look.
    Other,
}

const CLASSES: [Class; 256] = {
    let mut table = [Class::Other; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => Class::Flow,
            b':' => Class::Colon,
            b'#' => Class::Hash,
            _ => Class::Ordinary,
        };
        byte += 1;
    }
    table
};

pub(super) fn analyze(text: &str, dialect: Dialect) -> Analysis {
    if text.is_empty() {
        return Analysis {
            multiline: false,
            flow_plain_allowed: false,
            block_plain_allowed: true,
            single_quoted_allowed: true,
            block_allowed: false,
        };
    }
    analyze_ordinary(text.as_bytes()).unwrap_or_else(|| Marks::of(text, dialect).into_analysis())
}

/// The short way for nearly all keys and values: one line of ASCII that starts with a letter, a digit or the
/// like and ends without a space.
fn analyze_ordinary(value: &[u8]) -> Option<Analysis> {
    if !matches!(value[0], b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'/' | b'+' | b'(' | b'$' | b'~')
        || value.last() == Some(&b' ')
    {
        return None;
    }
    let (mut flow, mut block) = (false, false);
    for (at, byte) in value.iter().enumerate() {
        match CLASSES[usize::from(*byte)] {
            Class::Ordinary => {}
            Class::Flow => flow = true,
            Class::Colon => {
                flow = true;
                block |= matches!(value.get(at + 1), None | Some(b' '));
            }
            Class::Hash => {
                let after_space = value.get(at.wrapping_sub(1)) == Some(&b' ');
                flow |= after_space;
                block |= after_space;
            }
            Class::Other => return None,
        }
    }
    Some(Analysis {
        multiline: false,
        flow_plain_allowed: !flow,
        block_plain_allowed: !block,
        single_quoted_allowed: true,
        block_allowed: true,
    })
}

#[derive(Default)]
struct Marks {
    block_indicators: bool,
    flow_indicators: bool,
    line_breaks: bool,
    special_characters: bool,
    tab_characters: bool,
    leading_space: bool,
    leading_break: bool,
    trailing_space: bool,
    trailing_break: bool,
    break_space: bool,
    space_break: bool,
}

impl Marks {
    fn of(text: &str, dialect: Dialect) -> Self {
        let mut marks = Self::default();
        if text.starts_with("---") || text.starts_with("...") {
            marks.block_indicators = true;
            marks.flow_indicators = true;
        }
        let mut after_blank = true;
        let (mut previous_space, mut previous_break) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            marks.indicator(c, at == 0, after_blank, matches!(next, None | Some(' ' | '\t')));
            if c == '\t' && dialect == Dialect::V3 {
                marks.tab_characters = true;
            } else if !is_printable(c) {
                marks.special_characters = true;
            }
            if c == ' ' {
                marks.leading_space |= at == 0;
                marks.trailing_space |= next.is_none();
                marks.break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(c) {
                marks.line_breaks = true;
                marks.leading_break |= at == 0;
                marks.trailing_break |= next.is_none();
                marks.space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            after_blank = is_blank(c) || is_break(c) || c == '\0';
        }
        marks
    }

    fn indicator(&mut self, c: char, first: bool, after_blank: bool, before_blank: bool) {
        let (flow, block) = match c {
            '#' if first => (true, true),
            '#' => (after_blank, after_blank),
            ',' | '[' | ']' | '{' | '}' => (true, first),
            '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => (first, first),
            '?' => (true, first && before_blank),
            ':' => (true, before_blank),
            '-' => (first && before_blank, first && before_blank),
            _ => (false, false),
        };
        self.flow_indicators |= flow;
        self.block_indicators |= block;
    }

    fn into_analysis(self) -> Analysis {
        let edges = self.leading_space || self.leading_break || self.trailing_space || self.trailing_break;
        let no_single =
            self.break_space || self.space_break || self.tab_characters || self.special_characters;
        let plain = !edges && !no_single && !self.line_breaks;
        Analysis {
            multiline: self.line_breaks,
            flow_plain_allowed: plain && !self.flow_indicators,
            block_plain_allowed: plain && !self.block_indicators,
            single_quoted_allowed: !no_single,
            block_allowed: !(self.trailing_space || self.space_break || self.special_characters),
        }
    }
}

/// What libyaml calls printable. Characters beyond the basic plane (emoji) are not.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}
