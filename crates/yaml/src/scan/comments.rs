//! Comments and the token each one belongs to: go-yaml v3's rules, which look at indentation, empty lines and
//! the tokens read so far.

use super::{Kind, Mark, Scanner};
use crate::Schema;

/// A comment, or several lines of one, on its way to a token.
#[derive(Debug, Default)]
pub(super) struct Comment {
    /// Where the search for the token began that found this comment.
    scan: Mark,
    /// The comment goes to the first token that starts here or behind.
    token: Mark,
    start: Mark,
    end: Mark,
    head: String,
    line: String,
    foot: String,
}

/// What the comments in front of a token come to.
#[derive(Debug, Default)]
pub(crate) struct Unfolded {
    pub head: String,
    pub line: String,
    pub foot: String,
}

/// go-yaml looks at no more than this many bytes for a comment behind white space.
const PEEK: usize = 512;

impl Scanner<'_> {
    /// Adds the comments that belong to the next token, which has been peeked at, to what has been collected.
    pub(crate) fn unfold_comments(&mut self, into: &mut Unfolded) {
        let token = &self.tokens[self.head];
        while let Some(comment) = self.comments.get_mut(self.comments_head) {
            if token.start.index < comment.token.index
                // A head comment is not for the end of the block before.
                || (!comment.head.is_empty() && token.value.kind() == Kind::BlockEnd)
            {
                break;
            }
            let comment = std::mem::take(comment);
            for (text, out) in [
                (comment.head, &mut into.head),
                (comment.foot, &mut into.foot),
                (comment.line, &mut into.line),
            ] {
                if !text.is_empty() {
                    if !out.is_empty() {
                        out.push('\n');
                    }
                    out.push_str(&text);
                }
            }
            self.comments_head += 1;
        }
        if self.comments_head >= 256 {
            self.comments.drain(..self.comments_head);
            self.comments_head = 0;
        }
    }

    /// Where a block ends: before the comments that are indented like it.
    pub(super) fn end_of_block(&self, block: Mark) -> Mark {
        let mut mark = block;
        let mut stop = block.index;
        for comment in self.comments.iter().rev() {
            if comment.end.index < stop {
                break;
            }
            if i64::from(comment.start.column) == i64::from(self.indent) + 1 {
                mark = comment.start;
            }
            stop = comment.scan.index;
        }
        mark
    }

    /// A comment behind the first dash of a sequence is about the entry, not about the dash.
    pub(super) fn settle_entry_comment(&mut self) {
        let at_break = self.is_break(0);
        let mark = self.mark();
        let [.., before, last] = self.tokens.as_slice() else { return };
        let first_entry =
            before.value.kind() == Kind::BlockSequenceStart && last.value.kind() == Kind::BlockEntry;
        let Some(comment) = self.comments.get_mut(self.comments_head..).and_then(|open| open.last_mut())
        else {
            return;
        };
        if first_entry && !comment.line.is_empty() && !at_break {
            comment.head = std::mem::take(&mut comment.line);
            if i64::from(comment.start.line) == i64::from(mark.line) - 1 {
                comment.token = mark;
            }
        }
    }

    /// A comment on the line of the token that was just read.
    pub(super) fn scan_line_comment(&mut self, token: Mark) {
        if self.newlines > 0 {
            return;
        }
        let blanks = (0..PEEK).take_while(|offset| self.is_blank(*offset)).count();
        if blanks == PEEK || self.at(blanks) != b'#' {
            return;
        }
        self.skip_text(blanks);
        if !self.keep_comments {
            return self.skip_to_line_end();
        }
        let start = self.mark();
        let line = self.read_to_line_end();
        self.comments.push(Comment { token, start, line, ..Comment::default() });
    }

    /// Passes the comment here. v3 also passes those on the lines below, tabs before them included.
    pub(super) fn skip_comments(&mut self) {
        self.skip_to_line_end();
        while self.schema == Schema::V3 {
            let white = (1..PEEK).find(|offset| !self.is_blank(*offset) && !self.is_break(*offset));
            match white {
                Some(offset) if self.at(offset) == b'#' => {
                    self.skip_white(offset);
                    self.skip_to_line_end();
                }
                Some(_) | None => return,
            }
        }
    }

    fn read_to_line_end(&mut self) -> String {
        let length = self.bytes_to_line_end();
        let text = self.text[self.pos..self.pos + length].to_owned();
        self.skip_text(length);
        text
    }

    /// The comment lines here and below, up to the next token: foot comments of what came before, then the head
    /// comment of what follows.
    pub(super) fn scan_comments(&mut self, scan_mark: Mark) {
        let Some(mut token) = self.tokens.last() else { return };
        if token.value.kind() == Kind::FlowEntry
            && let [.., before, _] = self.tokens.as_slice()
        {
            token = before;
        }
        let token_kind = token.value.kind();
        let mut run =
            Run { scan: scan_mark, token: token.start, start: Mark::default(), text: String::new() };
        let next_indent = i64::from(self.indent.max(0));
        let mut recent_empty = false;
        let mut first_empty = self.newlines <= 1;
        let mut line = self.line;
        let mut column = i64::from(self.column);
        // The foot line is where a comment would stand directly below the token before.
        let mut foot_line = -1;
        if scan_mark.line > 0 {
            foot_line = i64::from(self.line) - i64::from(self.newlines) + 1;
            if self.newlines == 0 && self.column > 1 {
                foot_line += 1;
            }
        }
        let mut peek = 0;
        while peek < PEEK {
            column += 1;
            if self.is_blank(peek) {
                peek += 1;
                continue;
            }
            let closes_flow = self.flow_level > 0 && matches!(self.at(peek), b']' | b'}');
            let start_column = i64::from(run.start.column);
            if closes_flow || self.is_break_or_end(peek) {
                if closes_flow || !recent_empty {
                    let below = i64::from(run.start.line) == foot_line && token_kind != Kind::Value;
                    if closes_flow || (first_empty && (below || start_column - 1 < next_indent)) {
                        if !run.text.is_empty() {
                            if start_column - 1 < next_indent {
                                run.token = run.start;
                            }
                            self.end_foot(&mut run, peek, line, column);
                        }
                    } else if !run.text.is_empty() && self.at(peek) != 0 {
                        run.text.push('\n');
                    }
                }
                if !self.is_break(peek) {
                    break;
                }
                // Of a break of several bytes go-yaml looks at each: only `\r\n` has two that are breaks.
                first_empty = false;
                recent_empty = true;
                column = 0;
                line += 1;
                peek += 1;
                continue;
            }
            if !run.text.is_empty() && column - 1 < next_indent && column != start_column {
                self.end_foot(&mut run, peek, line, column);
            }
            if self.at(peek) != b'#' {
                break;
            }
            if run.text.is_empty() {
                run.start = mark_at(self.pos + peek, line, column);
            } else {
                run.text.push('\n');
            }
            recent_empty = false;
            self.skip_white(peek);
            let text = self.read_to_line_end();
            run.text.push_str(&text);
            // The loop of the original goes on behind the first byte of the line break.
            peek = 1;
            column = 0;
            line = self.line;
        }
        if !run.text.is_empty() {
            let end = mark_at((self.pos + peek).saturating_sub(1), line, column);
            let Run { scan, start, text: head, .. } = run;
            self.comments.push(Comment { scan, token: start, start, end, head, ..Comment::default() });
        }
    }

    /// What was collected is a foot comment; the next one starts here.
    fn end_foot(&mut self, run: &mut Run, peek: usize, line: u32, column: i64) {
        let end = mark_at(self.pos + peek, line, column);
        self.comments.push(Comment {
            scan: run.scan,
            token: run.token,
            start: run.start,
            end,
            foot: std::mem::take(&mut run.text),
            ..Comment::default()
        });
        run.scan = end;
        run.token = end;
    }

    /// Passes `bytes` bytes of white space and line breaks.
    fn skip_white(&mut self, bytes: usize) {
        let target = self.pos + bytes;
        while self.pos < target {
            if self.is_break(0) {
                self.skip_line();
            } else {
                self.skip_text(1);
            }
        }
    }
}

/// The lines of one comment while they are collected.
struct Run {
    scan: Mark,
    token: Mark,
    start: Mark,
    text: String,
}

fn mark_at(index: usize, line: u32, column: i64) -> Mark {
    Mark { index: i32::try_from(index).unwrap_or(i32::MAX), line, column: u32::try_from(column).unwrap_or(0) }
}
