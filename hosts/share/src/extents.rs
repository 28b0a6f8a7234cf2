//! Lists of extents of a file: what to gather, and where it goes.
//!
//! A list has one extent per line: its first page and its number of pages, or a line of
//! `filefrag -v`; in the order of the file. Absent: updating the file system's own extents.

use crate::copy::Piece;

/// A line of a list that is not an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} is not an extent: expected a first page and a number of pages, or a line of `filefrag -v`"
)]
pub struct ExtentError {
    /// Number of the line, from 1.
    pub line: usize,
}

/// An extent of the file, and its place after gathering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// First page, in the file.
    pub offset: u64,
    /// Its pages before.
    pub piece: Piece,
    /// First page after, by number in the namespace.
    pub to: u64,
}

/// The places of extents that are gathered from page `to` on.
pub fn layout(pieces: &[Piece], to: u64) -> Vec<Gathered> {
    let starts = pieces.iter().scan(0, |at, piece| {
        *at += piece.pages;
        Some(*at - piece.pages)
    });
    starts
        .zip(pieces)
        .map(|(offset, piece)| Gathered {
            offset,
            piece: *piece,
            to: to + offset,
        })
        .collect()
}

/// Parses a list of extents.
///
/// # Errors
/// The first line that is neither an extent nor a comment.
pub fn parse(text: &str) -> Result<Vec<Piece>, ExtentError> {
    let mut pieces = Vec::new();

    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        // `filefrag` also writes lines that are no extents.
        let heading = ["Filesystem type", "File size", "ext:"]
            .iter()
            .any(|begin| line.starts_with(begin));

        if line.is_empty() || line.starts_with('#') || heading || line.ends_with("found") {
            continue;
        }

        // The `filefrag` format first: two numbers could be the beginning of such a line.
        let piece = of_filefrag(line).or_else(|| of_numbers(line));

        pieces.push(piece.ok_or(ExtentError { line: index + 1 })?);
    }

    Ok(pieces)
}

/// Parses two numbers: the first page of an extent, and its number of pages.
fn of_numbers(line: &str) -> Option<Piece> {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let piece = Piece {
        first: numbers.next()??,
        pages: numbers.next()??,
    };
    numbers.next().is_none().then_some(piece)
}

/// `0:        0..     255:      34816..     35071:    256:             last,eof`.
fn of_filefrag(line: &str) -> Option<Piece> {
    let mut fields = line.split(':').map(str::trim);
    fields.next()?.parse::<u64>().ok()?;
    fields.next()?;
    let first = fields.next()?.split_once("..")?.0.trim().parse().ok()?;
    let pages = fields.next()?.parse().ok()?;
    Some(Piece { first, pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_extents_follow_each_other() {
        let piece = |first, pages| Piece { first, pages };
        let places = layout(&[piece(10, 3), piece(90, 4)], 500);
        let places: Vec<_> = places.iter().map(|one| (one.offset, one.to)).collect();
        assert_eq!(places, [(0, 500), (3, 503)]);
    }

    #[test]
    fn a_list_of_extents_is_numbers_or_what_filefrag_prints() {
        let piece = |first, pages| Piece { first, pages };

        assert_eq!(
            parse("# of a file\n10 3\n\n 20\t4 \n"),
            Ok(vec![piece(10, 3), piece(20, 4)])
        );

        let filefrag = "\
Filesystem type is: ef53
File size of big is 1052672 (257 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..     255:      34816..     35071:    256:
   1:      256..     256:      40000..     40000:      1:      35072: last,eof
big: 2 extents found
";

        assert_eq!(
            parse(filefrag),
            Ok(vec![piece(34816, 256), piece(40000, 1)])
        );

        for wrong in ["10", "10 3 4", "ten 3", "10 -3", "0: 1..2: 3"] {
            assert!(parse(wrong) == Err(ExtentError { line: 1 }), "{wrong}");
        }
    }
}
