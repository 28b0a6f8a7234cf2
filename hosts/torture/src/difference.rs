//! A lost block in words: where its content begins to differ from its newest.
//!
//! Absent: the search for the blocks (`shrink`).

use crate::campaign::Smallest;
use crate::contents::{ContentId, ZEROES};
use crate::cut::{DiskState, Lost};
use crate::record::Recording;

impl Smallest {
    /// The lost blocks in words, in order.
    pub fn described(&self, recording: &Recording) -> impl Iterator<Item = String> {
        let state = DiskState::at(recording, self.cut.instant);
        self.lost
            .iter()
            .map(move |lost| described(recording, &state, lost))
    }
}

/// A lost block: its newest content, and the content that it kept.
fn described(recording: &Recording, state: &DiskState, lost: &Lost) -> String {
    // Versions pending at the cut; if all are lost, the durable one remains.
    let versions = state
        .pending
        .get(&lost.block)
        .map_or(&[][..], Vec::as_slice);

    let kept = versions.len().saturating_sub(lost.versions as usize);

    let kept = kept
        .checked_sub(1)
        .map_or(state.durable[lost.block as usize], |index| {
            versions[index].content
        });

    let newest = versions.last().map_or(kept, |version| version.content);
    let offset = lost.block * u64::from(recording.shape.block_bytes);

    match [kept, newest].map(|id| content(recording, id)) {
        [Ok(kept), Ok(newest)] => difference(offset, &kept, &newest),
        [Err(error), _] | [_, Err(error)] => format!("byte {offset}: {error}"),
    }
}

/// The bytes of a block.
fn content(recording: &Recording, id: ContentId) -> std::io::Result<Vec<u8>> {
    let mut block = vec![0; recording.shape.block_bytes as usize];
    if id != ZEROES {
        recording.contents.get(id, &mut block)?;
    }
    Ok(block)
}

/// Contents of a block at `offset`, kept and newest, from the first byte that differs.
fn difference(offset: u64, kept: &[u8], newest: &[u8]) -> String {
    let mut bytes = kept.iter().zip(newest);
    let Some(at) = bytes.position(|(kept, newest)| kept != newest) else {
        return format!("byte {offset}: an older write of the same bytes");
    };
    format!(
        "byte {}: {} instead of {}",
        offset + at as u64,
        glimpse(&kept[at..]),
        glimpse(&newest[at..])
    )
}

/// The first few bytes.
fn glimpse(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    if bytes.iter().all(|byte| *byte == 0) {
        return "zeroes".into();
    }
    let shown = &bytes[..SHOWN.min(bytes.len())];
    let more = if shown.len() < bytes.len() { ".." } else { "" };
    format!("\"{}\"{more}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_lost_block_begin_where_they_differ() {
        let [mut kept, mut newest] = [[b'a'; 4096]; 2];
        (kept[100], newest[100]) = (b'1', b'2');
        let line = difference(8192, &kept, &newest);
        assert_eq!(
            line,
            r#"byte 8292: "1aaaaaaaaaaaaaaa".. instead of "2aaaaaaaaaaaaaaa".."#
        );

        // At the end of the block, and before zeroes.
        let [mut kept, newest] = [[b'a'; 4096]; 2];
        kept[4095] = 0;
        let line = difference(0, &kept, &newest);
        assert_eq!(line, r#"byte 4095: zeroes instead of "a""#);
        assert_eq!(
            difference(0, &newest, &newest),
            "byte 0: an older write of the same bytes"
        );
    }
}
