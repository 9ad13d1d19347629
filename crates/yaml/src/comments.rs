//! Comments on their way to the nodes they belong to.

use granit_parser::Span;

use crate::Document;

/// The comments of one document, in the order of the source.
#[derive(Default)]
pub(crate) struct CommentLines {
    lines: Vec<String>,
}

impl CommentLines {
    pub fn add(&mut self, text: &str, _span: Span) {
        self.lines.push(format!("#{text}"));
    }

    pub fn attach(&mut self, _document: &mut Document) {
        self.lines.clear();
    }
}
