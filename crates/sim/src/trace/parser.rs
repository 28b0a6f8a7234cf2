//! One parser for all formats: which one reads the next record, and what it found.
//!
//! Invariants: a record that cannot be parsed is a reason, never an end. Absent: formats' fields
//! (each parser's), and what becomes of a record (the decoder's).

use super::input::{Input, TraceLine};
use super::record::{Digests, Parsed, Reason};
use super::{
    Action, Format, alibaba, blkparse, blktrace, fio, fiu, mqsim, msr, oracle_general, session,
    systor, tencent, vscsi,
};
use crate::source::SourceError;

pub(super) enum Parser {
    Fiu,
    Mqsim,
    Msr,
    Blkparse(Action),
    Vscsi(vscsi::VscsiVersion),
    Session,
    Alibaba,
    Tencent,
    Systor,
    Fio(fio::Log),
    Blktrace(Action),
    OracleGeneral,
}

/// What a parser found next.
pub(super) enum ParsedRecord {
    Parsed(Result<Parsed, Reason>),
    Blank,
    End,
}

impl Parser {
    pub(super) fn new(
        format: Format,
        action: Action,
        input: &mut Input,
        sample: &[u8],
    ) -> Result<Self, SourceError> {
        Ok(match format {
            Format::Fiu => Parser::Fiu,
            Format::Mqsim => Parser::Mqsim,
            Format::Msr => Parser::Msr,
            Format::Blkparse => Parser::Blkparse(action),
            Format::Session => Parser::Session,
            Format::Alibaba => Parser::Alibaba,
            Format::Tencent => Parser::Tencent,
            Format::Systor => Parser::Systor,
            Format::Fio => Parser::Fio(fio::Log::default()),
            Format::Blktrace => Parser::Blktrace(action),
            Format::OracleGeneral => Parser::OracleGeneral,
            // A file begun in the middle is named by its first record.
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
        }
    }

    pub(super) fn next(
        &mut self,
        input: &mut Input,
        digests: &mut Digests,
    ) -> Result<ParsedRecord, SourceError> {
        // They are the last record's.
        digests.clear();

        // Binary formats come in records, all others in lines.
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
            Parser::Blktrace(action) => return Self::next_event(*action, input),
            _ => {}
        }

        // An empty line is no record, and no error either.
        let line = match input.line()? {
            TraceLine::Text(line) if line.trim_ascii().is_empty() => {
                return Ok(ParsedRecord::Blank);
            }
            TraceLine::Text(line) => line,
            TraceLine::Unreadable(reason) => {
                return Ok(ParsedRecord::Parsed(Err(reason.to_owned())));
            }
            TraceLine::End => return Ok(ParsedRecord::End),
        };

        // A line knows nothing of those before it, but for fio's, which adds up waits.
        let parsed = match self {
            Parser::Fiu => fiu::parse(line, digests),
            Parser::Mqsim => mqsim::parse(line),
            Parser::Msr => msr::parse(line),
            Parser::Blkparse(action) => blkparse::parse(line, *action),
            Parser::Session => session::parse(line, digests),
            Parser::Alibaba => alibaba::parse(line),
            Parser::Tencent => tencent::parse(line),
            Parser::Systor => systor::parse(line),
            Parser::Fio(log) => log.parse(line),
            Parser::Vscsi(_) | Parser::Blktrace(_) | Parser::OracleGeneral => {
                unreachable!("binary records were read above")
            }
        };

        // What is no text cannot be quoted: the reason says only that.
        Ok(ParsedRecord::Parsed(parsed.map_err(
            |reason| match std::str::from_utf8(line) {
                Ok(_) => reason,
                Err(_) => "the line is not UTF-8 text".into(),
            },
        )))
    }

    /// An event and what follows it.
    fn next_event(action: Action, input: &mut Input) -> Result<ParsedRecord, SourceError> {
        let parsed = match input.record(blktrace::EVENT_BYTES)? {
            [] => return Ok(ParsedRecord::End),
            bytes => blktrace::parse(bytes, action),
        };
        Ok(ParsedRecord::Parsed(match parsed {
            Ok((_, payload)) if !input.skip(payload)? => {
                Err(format!("cut within {payload} bytes of payload"))
            }
            Ok((parsed, _)) => Ok(parsed),
            Err(reason) => Err(reason),
        }))
    }
}
