//! One parser for all formats: selects the format's parser for the next record, and returns its
//! result.
//!
//! Invariants: a record that cannot be parsed is a reason, never an end. Absent: the fields of each
//! format (its parser's), and the use of a record (the decoder's).

use super::blkparse::Wanted;
use super::input::{Input, Text, TraceLine};
use super::record::{Digests, Parsed, Reason};
use super::{
    Action, Format, alibaba, biosnoop, blkparse, blktrace, cloudphysics, columns, disksim, fast21,
    fio, fiu, heading, mqsim, msr, oracle_general, session, spc, systor, tencent, vscsi,
};
use crate::source::SourceError;

pub(super) enum Parser {
    Fiu,
    Mqsim,
    Msr,
    Blkparse(blkparse::Text),
    Vscsi(vscsi::VscsiVersion),
    Session,
    Alibaba,
    Tencent,
    Systor,
    Fio(fio::Log),
    Blktrace(Wanted),
    OracleGeneral,
    Fast21,
    Spc,
    DiskSim,
    Biosnoop(biosnoop::Biosnoop),
    CloudPhysics,
    Csv(Box<columns::Table>),
}

/// The next result of a parser.
pub(super) enum ParsedRecord {
    Parsed(Result<Parsed, Reason>),
    Blank,
    End,
}

impl Parser {
    pub(super) fn new(
        format: Format,
        action: Option<Action>,
        input: &mut Input,
        sample: &[u8],
    ) -> Result<Self, SourceError> {
        Ok(match format {
            Format::Fiu => Parser::Fiu,
            Format::Mqsim => Parser::Mqsim,
            Format::Msr => Parser::Msr,
            Format::Blkparse => Parser::Blkparse(blkparse::Text::of(action, sample)),
            Format::Session => Parser::Session,
            Format::Alibaba => Parser::Alibaba,
            Format::Tencent => Parser::Tencent,
            Format::Systor => Parser::Systor,
            Format::Fio => Parser::Fio(fio::Log::default()),
            Format::Blktrace => Parser::Blktrace(blktrace::wanted(action, sample)),
            Format::OracleGeneral => Parser::OracleGeneral,
            Format::Fast21 => Parser::Fast21,
            Format::Spc => Parser::Spc,
            Format::DiskSim => Parser::DiskSim,
            Format::Biosnoop => Parser::Biosnoop(biosnoop::Biosnoop::default()),
            Format::CloudPhysics => Parser::CloudPhysics,
            Format::Csv(columns) => Parser::Csv(Box::new(columns::Table::new(columns))),
            // The first record of a file that begins in the middle is reported.
            Format::Vscsi => match vscsi::VscsiVersion::of_first(sample) {
                Ok(version) => Parser::Vscsi(version),
                Err(reason) => {
                    input.record(vscsi::RECORD_BYTES_MAX)?;
                    return Err(input.malformed(reason));
                }
            },
        })
    }

    pub(super) fn format(&self) -> Format {
        match self {
            Parser::Fiu => Format::Fiu,
            Parser::Mqsim => Format::Mqsim,
            Parser::Msr => Format::Msr,
            Parser::Blkparse(_) => Format::Blkparse,
            Parser::Vscsi(_) => Format::Vscsi,
            Parser::Session => Format::Session,
            Parser::Alibaba => Format::Alibaba,
            Parser::Tencent => Format::Tencent,
            Parser::Systor => Format::Systor,
            Parser::Fio(_) => Format::Fio,
            Parser::Blktrace(_) => Format::Blktrace,
            Parser::OracleGeneral => Format::OracleGeneral,
            Parser::Fast21 => Format::Fast21,
            Parser::Spc => Format::Spc,
            Parser::DiskSim => Format::DiskSim,
            Parser::Biosnoop(_) => Format::Biosnoop,
            Parser::CloudPhysics => Format::CloudPhysics,
            Parser::Csv(table) => Format::Csv(table.format()),
        }
    }

    /// The action whose events are the requests, of formats that have several.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        match self {
            Parser::Blkparse(text) => Some(text.wanted),
            Parser::Blktrace(wanted) => Some(*wanted),
            _ => None,
        }
    }

    pub(super) fn next(
        &mut self,
        input: &mut Input,
        digests: &mut Digests,
    ) -> Result<ParsedRecord, SourceError> {
        // They belong to the last record.
        digests.clear();

        // Binary formats have records, all others lines.
        match self {
            Parser::Vscsi(version) => {
                return Ok(match input.record(version.record_bytes())? {
                    [] => ParsedRecord::End,
                    bytes => ParsedRecord::Parsed(version.parse(bytes)),
                });
            }
            Parser::OracleGeneral => {
                return Ok(match input.record(oracle_general::RECORD_BYTES)? {
                    [] => ParsedRecord::End,
                    bytes => ParsedRecord::Parsed(oracle_general::parse(bytes)),
                });
            }
            Parser::Blktrace(wanted) => {
                let wanted = *wanted;
                return self.next_event(wanted, input);
            }
            _ => {}
        }

        // An empty line is neither a record nor an error.
        let parsed = match input.line()? {
            TraceLine::Text(text) if text.line.trim_ascii().is_empty() => {
                return Ok(ParsedRecord::Blank);
            }
            TraceLine::Text(text) => self.parse(text, digests),
            TraceLine::Unreadable(reason) => Err(reason.to_owned()),
            TraceLine::End => return Ok(ParsedRecord::End),
        };
        self.usable(input, parsed)
    }

    fn parse(&mut self, text: Text<'_>, digests: &mut Digests) -> Result<Parsed, Reason> {
        let line = text.line;

        // Records begin with a number.
        if line[0].is_ascii_alphabetic() && self.is_heading(text) {
            return Ok(Parsed::Blank);
        }

        // Lines are parsed independently, except in formats with sections or a first line.
        let parsed = match self {
            Parser::Fiu => fiu::parse(line, digests),
            Parser::Mqsim => mqsim::parse(line),
            Parser::Msr => msr::parse(line),
            Parser::Blkparse(format) => format.parse(line, text.is_unended),
            Parser::Session => session::parse(line, digests),
            Parser::Alibaba => alibaba::parse(line),
            Parser::Tencent => tencent::parse(line),
            Parser::Systor => systor::parse(line),
            Parser::Fio(log) => log.parse(line),
            Parser::Fast21 => fast21::parse(line, digests),
            Parser::Spc => spc::parse(line),
            Parser::DiskSim => disksim::parse(line),
            Parser::Biosnoop(log) => log.parse(line),
            Parser::CloudPhysics => cloudphysics::parse(line),
            Parser::Csv(table) => table.parse(line, digests),
            Parser::Vscsi(_) | Parser::Blktrace(_) | Parser::OracleGeneral => {
                unreachable!("binary records were read above")
            }
        };

        // Binary data cannot be quoted: the reason says only that.
        parsed.map_err(|reason| match std::str::from_utf8(line) {
            Ok(_) => reason,
            Err(_) => "the line is not UTF-8 text".into(),
        })
    }

    /// Returns true if a line names the columns of comma-separated values: a published heading
    /// anywhere, since files may be concatenated; other headings only in the first line.
    fn is_heading(&self, text: Text<'_>) -> bool {
        let has_headings = matches!(
            self,
            Parser::Msr
                | Parser::Alibaba
                | Parser::Tencent
                | Parser::Systor
                | Parser::Spc
                | Parser::CloudPhysics
        );
        has_headings
            && (heading::published(text.line) == Some(self.format())
                || (text.number == 1 && heading::names_columns(text.line)))
    }

    /// Reads an event and its payload.
    fn next_event(&self, wanted: Wanted, input: &mut Input) -> Result<ParsedRecord, SourceError> {
        let parsed = match input.record(blktrace::EVENT_BYTES)? {
            [] => return Ok(ParsedRecord::End),
            bytes => blktrace::parse(bytes, wanted),
        };
        let parsed = match parsed {
            Ok((_, payload)) if !input.skip(payload)? => {
                Err(format!("cut within {payload} bytes of payload"))
            }
            Ok((parsed, _)) => Ok(parsed),
            Err(reason) => Err(reason),
        };
        self.usable(input, parsed)
    }

    /// Returns the parsed record, unless it shows that the action chosen earlier was wrong.
    fn usable(
        &self,
        input: &Input,
        parsed: Result<Parsed, Reason>,
    ) -> Result<ParsedRecord, SourceError> {
        match (&parsed, self.wanted()) {
            (Ok(Parsed::Better(action)), Some(wanted)) => {
                Err(input.malformed(blkparse::better(*action, wanted.action)))
            }
            _ => Ok(ParsedRecord::Parsed(parsed)),
        }
    }
}
