//! Detection of a format by the content of a trace.
//!
//! Invariants: `guess` answers only if a record parses as that format; the formats exclude each
//! other record by record, so the answer does not depend on the order of the checks. Absent: file
//! names. An extension is a hint that is wrong too often.

use super::format::Format;
use super::record::{Digests, Parsed};
use super::{alibaba, biosnoop, blkparse, blktrace, cloudphysics, disksim, fast21, fio, fiu};
use super::{heading, mqsim, msr, oracle_general, session, spc, systor, tencent, vscsi};

impl Format {
    /// Returns the format of a trace that begins with `sample` (decompressed), if it is
    /// unambiguous.
    ///
    /// A few tens of KiB are enough; a last line cut by the sample is not considered.
    ///
    /// ```
    /// use remap_ssd_sim::trace::Format;
    /// assert_eq!(Format::guess(b"938513000 4 264719034 16 0\n"), Some(Format::Mqsim));
    /// assert_eq!(Format::guess(b"to whom it may concern\n"), None);
    /// ```
    pub fn guess(sample: &[u8]) -> Option<Format> {
        // Binary formats first: their bytes may look like lines by chance.
        if vscsi::VscsiVersion::of(sample).is_some() {
            return Some(Format::Vscsi);
        }
        if blktrace::is_event(sample) {
            return Some(Format::Blktrace);
        }

        // A line cut by the sample would be misjudged.
        let whole_lines = match sample.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => &sample[..end],
            None => sample,
        };

        let mut lines = whole_lines
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii);

        // Headers stand in the first line only.
        let first = lines.clone().next().unwrap_or_default();
        if fio::is_header(first) {
            return Some(Format::Fio);
        }
        if biosnoop::is_heading(first) {
            return Some(Format::Biosnoop);
        }
        if let Some(format) = heading::published(first) {
            return Some(format);
        }

        // The first valid record decides: formats exclude each other, except for lines that two
        // formats of five numbers share.
        let mut ambiguous = None;
        for line in lines.by_ref().take(LINES_JUDGED) {
            match format_of_line(line) {
                Some(Format::Mqsim) if fast21::is_ambiguous(line) => {
                    ambiguous = Some(Format::Mqsim);
                }
                Some(format) => return Some(format),
                None => {}
            }
        }
        ambiguous.or_else(|| oracle_general::is_trace(sample).then_some(Format::OracleGeneral))
    }
}

/// Lines searched for the first record: comments may come before it.
const LINES_JUDGED: usize = 64;

fn format_of_line(line: &[u8]) -> Option<Format> {
    // An ignored line is no evidence: many formats would ignore it.
    let is_request = |parsed| {
        matches!(
            parsed,
            Ok(Parsed::Request(_) | Parsed::Moved(_) | Parsed::Empty)
        )
    };
    let mut digests = Digests::default();
    let is = |format: Format, digests: &mut Digests| match format {
        Format::Fiu => is_request(fiu::parse(line, digests)),
        Format::Mqsim => is_request(mqsim::parse(line)),
        Format::Msr => is_request(msr::parse(line)),
        Format::Session => is_request(session::parse(line, digests)),
        Format::Alibaba => is_request(alibaba::parse(line)),
        Format::Tencent => is_request(tencent::parse(line)),
        Format::Systor => is_request(systor::parse(line)),
        Format::Blkparse => blkparse::is_event(line),
        Format::Fast21 => !fast21::is_ambiguous(line) && is_request(fast21::parse(line, digests)),
        Format::Spc => is_request(spc::parse(line)),
        Format::DiskSim => is_request(disksim::parse(line)),
        Format::CloudPhysics => is_request(cloudphysics::parse(line)),
        // Detected by the beginning of a file, or named by the user.
        Format::Vscsi | Format::Fio | Format::Blktrace | Format::OracleGeneral => false,
        Format::Biosnoop | Format::Csv(_) => false,
    };

    // At most one answers, so the order does not matter.
    Format::ALL
        .into_iter()
        .find(|format| is(*format, &mut digests))
}
