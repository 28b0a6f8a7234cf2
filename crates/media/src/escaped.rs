//! Escapes text from peers and files for logs and terminals.
//!
//! Invariant: the output is one line without control characters, and different texts have different
//! outputs. So a name can neither forge a log line nor move a cursor. Absent: JSON, which has its
//! own escapes.

use std::fmt::{Display, Formatter, Result, Write};

/// Text from a peer or a file, escaped as Rust escapes characters: `\n`, `\u{202e}`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a str,
    spaces: bool,
}

impl<'a> Escaped<'a> {
    /// A name: one word, so that the rest of the line is ours.
    pub fn name(text: &'a str) -> Self {
        Self {
            text,
            spaces: false,
        }
    }

    /// A text that may have spaces.
    pub fn text(text: &'a str) -> Self {
        Self { text, spaces: true }
    }
}

/// Characters that end a line, are invisible, or change the text direction.
fn is_hidden(c: char) -> bool {
    let formats = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    let more = matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || formats || more || (c.is_whitespace() && c != ' ')
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for c in self.text.chars() {
            match c {
                '\\' | '"' | '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default())?,
                ' ' if self.spaces => f.write_char(c)?,
                ' ' => f.write_str("\\u{20}")?,
                c if is_hidden(c) => write!(f, "{}", c.escape_unicode())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_visible_word() {
        let name =
            "nqn.2026-11.org:a\n2026-11-22 INFO queue 1 ended\u{1b}[2J\u{9b}\u{202e}\u{2028}\\n\"é";
        let shown = Escaped::name(name).to_string();

        assert!(
            !shown
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || is_hidden(c)),
            "{shown}"
        );

        assert!(
            shown.starts_with("nqn.2026-11.org:a\\n2026-11-22\\u{20}INFO"),
            "{shown}"
        );
        assert!(
            shown.ends_with("\\u{1b}[2J\\u{9b}\\u{202e}\\u{2028}\\\\n\\\"é"),
            "{shown}"
        );

        assert_eq!(Escaped::text("a b\tc").to_string(), "a b\\tc");
    }
}
