//! First lines that name the columns of comma-separated values.
//!
//! Published traces come with such a line or without, and concatenated files have several.
//! Invariant: no record of any format is a heading, since each has a number in some column where a
//! heading has a name. Absent: headings of blank-separated columns (`biosnoop.rs`).

use super::format::Format;
use super::record::values;

/// Published headings, in lower case.
const PUBLISHED: [(&str, Format); 6] = [
    (
        "timestamp,hostname,disknumber,type,offset,size,responsetime",
        Format::Msr,
    ),
    ("device_id,opcode,offset,length,timestamp", Format::Alibaba),
    ("timestamp,offset,size,iotype,volumeid", Format::Tencent),
    ("timestamp,response,iotype,lun,offset,size", Format::Systor),
    ("version,time,op,size,lbn", Format::CloudPhysics),
    ("asu,lba,size,opcode,timestamp", Format::Spc),
];

/// The format of a published heading.
pub(super) fn published(line: &[u8]) -> Option<Format> {
    let names: Vec<u8> = line
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(u8::to_ascii_lowercase)
        .collect();
    let is_it = |(heading, _): &&(&str, Format)| heading.as_bytes() == names;
    PUBLISHED.iter().find(is_it).map(|(_, format)| *format)
}

/// Returns true if every column has a name, which begins with a letter.
pub(super) fn names_columns(line: &[u8]) -> bool {
    let is_name = |field: &[u8]| {
        field.first().is_some_and(u8::is_ascii_alphabetic)
            && field
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b" _-./()[]%".contains(byte))
    };
    values(line).count() > 1 && values(line).all(is_name)
}
