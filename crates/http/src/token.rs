//! The token that a request needs for everything but health and the page; it is kept in a file.
//!
//! Invariants: comparison takes constant time; the token is never logged or shown. Absent: TLS;
//! beyond the loopback use a proxy that has it.

use constant_time_eq::constant_time_eq;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Minimum length of a token.
pub(crate) const LEN_MIN: usize = 16;

/// A token that requests must carry.
pub struct Token(String);

/// Why a token file is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(std::io::Error),
    /// Other users can read the file; its mode.
    #[error("others can read it (mode {0:04o}): chmod 600")]
    Open(u32),
    /// It is too short, or not a single line of text.
    #[error("a token is one line of at least {LEN_MIN} letters, digits and signs, without blanks")]
    Shape,
}

impl Token {
    /// Reads a token file, which other users must not be able to read.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it holds no valid token.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let mode = std::fs::metadata(path)
            .map_err(TokenError::Unreadable)?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::Open(mode & 0o7777));
        }
        let text = std::fs::read_to_string(path).map_err(TokenError::Unreadable)?;
        Self::new(&text)
    }

    /// The file in which clients look for a token, if it is there: `remap-ssd/token` in the folder for
    /// configuration, `~/.config`.
    pub fn default_file() -> Option<PathBuf> {
        let given = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
        let folder = given.filter(|folder| folder.is_absolute()).or_else(home)?;
        let file = folder.join("remap-ssd/token");
        file.is_file().then_some(file)
    }

    /// Parses a token.
    ///
    /// # Errors
    /// The text is not a valid token.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim_end_matches(['\n', '\r']);
        let fits = text.len() >= LEN_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(TokenError::Shape)
        }
    }

    /// Returns true if the value of an `Authorization` header carries the token.
    pub(crate) fn is_in(&self, authorization: &[u8]) -> bool {
        // `Bearer ` has seven bytes; scheme names are case-insensitive (RFC 9110, section 11.1).
        let Some((scheme, said)) = authorization.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ")
            && constant_time_eq(said.trim_ascii(), self.0.as_bytes())
    }

    /// The header's value, for clients.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug output ends up in logs, and must not contain a token.
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_after_bearer_is_the_token() {
        let token = Token::new("0123456789abcdef\n").expect("a token");
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        assert!(token.is_in(b"bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789abcdeF",
            "Bearer 1123456789abcdef",
        ] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_short_token_or_one_that_others_can_read_is_refused() {
        assert!(matches!(Token::new("short"), Err(TokenError::Shape)));
        assert!(matches!(
            Token::new("0123456789 abcdef"),
            Err(TokenError::Shape)
        ));
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").expect("room");
        for (mode, works) in [
            (0o644, false),
            (0o640, false),
            (0o604, false),
            (0o600, true),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
            assert_eq!(Token::load(&path).is_ok(), works, "{mode:o}");
        }
    }

    #[test]
    fn debug_output_names_a_token_and_does_not_show_it() {
        let token = Token::new("0123456789abcdef").expect("a token");
        for text in [format!("{token:?}"), format!("{token:#?}")] {
            assert_eq!(text, "Token(..)");
        }
    }
}
