//! Estimates text widths, and fits text.
//!
//! The reader's browser chooses the font, so the widths are those of DejaVu Sans, one of the widest
//! fonts for `system-ui` or `sans-serif`: actual text is no wider. Absent: other scripts' exact
//! widths; a letter missing in the table counts as a wide one.

/// Advances of ASCII from the space on, thousandths of the font's size.
const ADVANCES: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];
const ADVANCE_OTHER: u16 = 1000;
/// Bold letters are wider by this factor.
const BOLD: f64 = 1.12;

/// Size of most text, in units of the picture.
pub(crate) const TEXT: f64 = 12.0;

/// Width of `text` in a font of this size.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let advance = |c: char| match (c as usize).checked_sub(32) {
        Some(at) if at < ADVANCES.len() => ADVANCES[at],
        _ => ADVANCE_OTHER,
    };
    text.chars().map(advance).map(f64::from).sum::<f64>() * size / 1000.0
}

/// Width of `text` in bold, in a font of this size.
pub(crate) fn width_bold(text: &str, size: f64) -> f64 {
    width(text, size) * BOLD
}

/// Returns `text` if it fits, else truncated with an ellipsis.
pub(crate) fn fitted(text: &str, room: f64, size: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }

    let mut kept: String = text.to_owned();
    // From the end, a letter at a time: texts of a chart are short.
    while kept.pop().is_some() {
        let shorter = format!("{}…", kept.trim_end());
        if width(&shorter, size) <= room {
            return shorter;
        }
    }
    "…".to_owned()
}

/// Returns `text` in lines that fit, broken at blanks; at most `lines`, the last one shortened.
pub(crate) fn wrapped(text: &str, room: f64, size: f64, lines: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match found.last_mut() {
            Some(line) if found_fits(line, word, room, size) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => found.push(word.to_owned()),
        }
    }

    // The remaining words go into the last line, which is shortened.
    if found.len() > lines {
        let rest = found.split_off(lines - 1).join(" ");
        found.push(rest);
    }
    found
        .into_iter()
        .map(|line| fitted(&line, room, size))
        .collect()
}

fn found_fits(line: &str, word: &str, room: f64, size: f64) -> bool {
    width(line, size) + width(" ", size) + width(word, size) <= room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shortened_or_wrapped_fits() {
        for text in [
            "remap-ssd",
            "WWWWWWWWWWWW",
            "a few words and more of them",
            "µµµµ µµµµ",
            "",
        ] {
            for room in [5.0, 20.0, 47.5, 300.0] {
                let short = fitted(text, room, TEXT);
                assert!(width(&short, TEXT) <= room.max(width("…", TEXT)), "{short}");

                let lines = wrapped(text, room, TEXT, 2);
                assert!(lines.len() <= 2);
                assert!(lines.iter().all(|line| width(line, TEXT) <= room.max(12.0)));
            }
        }
        assert_eq!(fitted("remap-ssd", 300.0, TEXT), "remap-ssd");
        assert_eq!(wrapped("one two", 300.0, TEXT, 2), ["one two"]);
    }
}
