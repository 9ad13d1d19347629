//! Lexer
