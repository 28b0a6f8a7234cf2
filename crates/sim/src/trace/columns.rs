//! Text in columns named by the user: `csv:time_us,device,op,offset_bytes,size_bytes`.
//!
//! Commas, semicolons, tabs or blanks separate the columns; the first record determines which. A
//! first line with column names is skipped. Invariants: the columns `op`, an offset and a size are
//! named, each only once; a line has exactly as many fields as there are columns. Absent:
//! detection; such a format is always named.

use std::fmt;
use std::str::FromStr;

use super::action::Action;
use super::blkparse::verb as verb_of_rwbs;
use super::names::{FormatError, UnknownName};
use super::record::{
    ByteExtent, Digests, Parsed, Reason, RequestKind, clip, decimal, number, verb_of,
};

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Column {
    Skipped,
    Time {
        unit: TimeUnit,
    },
    Device,
    Op,
    /// The numbers for read and write.
    OpNumber {
        read: u8,
    },
    Offset {
        unit: SizeUnit,
    },
    Size {
        unit: SizeUnit,
    },
    Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TimeUnit {
    Ns,
    HundredNs,
    Us,
    Ms,
    S,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SizeUnit {
    Bytes,
    Sectors,
    KiB,
    Pages,
}

/// All column names.
const COLUMNS: [(&str, Column); 19] = {
    use Column::{Device, Digest, Offset, Op, OpNumber, Size, Skipped, Time};
    use SizeUnit::{Bytes, KiB, Pages, Sectors};
    [
        ("time_ns", Time { unit: TimeUnit::Ns }),
        (
            "time_100ns",
            Time {
                unit: TimeUnit::HundredNs,
            },
        ),
        ("time_us", Time { unit: TimeUnit::Us }),
        ("time_ms", Time { unit: TimeUnit::Ms }),
        ("time_s", Time { unit: TimeUnit::S }),
        ("device", Device),
        ("op", Op),
        ("op_0r1w", OpNumber { read: 0 }),
        ("op_0w1r", OpNumber { read: 1 }),
        ("offset_bytes", Offset { unit: Bytes }),
        ("offset_sectors", Offset { unit: Sectors }),
        ("offset_kib", Offset { unit: KiB }),
        ("offset_pages", Offset { unit: Pages }),
        ("size_bytes", Size { unit: Bytes }),
        ("size_sectors", Size { unit: Sectors }),
        ("size_kib", Size { unit: KiB }),
        ("size_pages", Size { unit: Pages }),
        ("digest", Digest),
        ("-", Skipped),
    ]
};

const NAMES: &str = "time_ns, time_100ns, time_us, time_ms, time_s, device, op, op_0r1w, op_0w1r, \
    offset_bytes, offset_sectors, offset_kib, offset_pages, size_bytes, size_sectors, size_kib, \
    size_pages, digest, -";

const COLUMNS_MAX: usize = 24;

/// The columns of a text, in order.
///
/// ```
/// use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};
/// let format: Format = "csv:time_ms,-,op,offset_sectors,size_bytes".parse()?;
/// assert_eq!(format.to_string(), "csv:time_ms,-,op,offset_sectors,size_bytes");
/// let text = b"when,who,what,where,length\n0.5,a,write,8,4096\n0.75,b,read,8,4096\n";
/// let reader = TraceReader::of_bytes("mine.csv", text, Some(format), TraceOptions::new(100))?;
/// assert_eq!(reader.format(), format);
///
/// let error = "csv:time,op".parse::<Format>().unwrap_err().to_string();
/// assert!(error.starts_with("unknown column `time`: one of time_ns, "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Columns {
    columns: [Column; COLUMNS_MAX],
    count: usize,
}

impl Columns {
    fn named(&self) -> &[Column] {
        &self.columns[..self.count]
    }
}

impl FromStr for Columns {
    type Err = FormatError;

    fn from_str(list: &str) -> Result<Self, FormatError> {
        let mut columns = [Column::Skipped; COLUMNS_MAX];
        let mut count = 0;
        for name in list.split(',') {
            let known = COLUMNS.iter().find(|(known, _)| *known == name);
            let (_, column) = known.ok_or_else(|| UnknownName::new("column", name, NAMES))?;
            let place = columns.get_mut(count).ok_or(FormatError::TooManyColumns)?;
            (*place, count) = (*column, count + 1);
        }

        let columns = Self { columns, count };
        let of = |kind: Kind| {
            columns
                .named()
                .iter()
                .filter(|column| Kind::of(column) == Some(kind))
                .count()
        };
        for kind in Kind::ALL {
            match of(kind) {
                0 if kind.is_needed() => return Err(FormatError::NoColumn(kind.names())),
                0 | 1 => {}
                _ => return Err(FormatError::TwoColumns(kind.names())),
            }
        }
        Ok(columns)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, column) in self.named().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let known = COLUMNS.iter().find(|(_, known)| known == column);
            let (name, _) = known.expect("every column has a name");
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Columns({self})")
    }
}

/// Columns that are alternatives of each other.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Time,
    Device,
    Op,
    Offset,
    Size,
    Digest,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Time,
        Kind::Device,
        Kind::Op,
        Kind::Offset,
        Kind::Size,
        Kind::Digest,
    ];

    fn of(column: &Column) -> Option<Kind> {
        match column {
            Column::Skipped => None,
            Column::Time { .. } => Some(Kind::Time),
            Column::Device => Some(Kind::Device),
            Column::Op | Column::OpNumber { .. } => Some(Kind::Op),
            Column::Offset { .. } => Some(Kind::Offset),
            Column::Size { .. } => Some(Kind::Size),
            Column::Digest => Some(Kind::Digest),
        }
    }

    fn is_needed(self) -> bool {
        matches!(self, Kind::Op | Kind::Offset | Kind::Size)
    }

    fn names(self) -> &'static str {
        match self {
            Kind::Time => "time_ns, time_100ns, time_us, time_ms or time_s",
            Kind::Device => "device",
            Kind::Op => "op, op_0r1w or op_0w1r",
            Kind::Offset => "offset_bytes, offset_sectors, offset_kib or offset_pages",
            Kind::Size => "size_bytes, size_sectors, size_kib or size_pages",
            Kind::Digest => "digest",
        }
    }
}

impl TimeUnit {
    fn ns(self) -> u64 {
        match self {
            TimeUnit::Ns => 1,
            TimeUnit::HundredNs => 100,
            TimeUnit::Us => 1000,
            TimeUnit::Ms => 1_000_000,
            TimeUnit::S => 1_000_000_000,
        }
    }
}

impl SizeUnit {
    fn bytes(self) -> u64 {
        match self {
            SizeUnit::Bytes => 1,
            SizeUnit::Sectors => super::record::SECTOR_BYTES,
            SizeUnit::KiB => 1024,
            SizeUnit::Pages => super::address::PAGE_BYTES,
        }
    }

    fn of(self, field: &[u8], name: &str) -> Result<u64, Reason> {
        number(field, name)?
            .checked_mul(self.bytes())
            .ok_or_else(|| format!("{name} `{}` is too large", clip(field)))
    }
}

/// Parses lines of these columns.
pub(super) struct Table {
    columns: Columns,
    separator: Option<Separator>,
}

#[derive(Clone, Copy, PartialEq)]
enum Separator {
    Byte(u8),
    Blanks,
}

/// Values of a line's fields so far.
struct Fields<'a> {
    at_ns: u64,
    device: u64,
    verb: Option<Verb>,
    extent: ByteExtent,
    digest: Option<&'a [u8]>,
}

#[derive(Clone, Copy)]
enum Verb {
    Request(RequestKind),
    Flush,
    /// Neither transfers nor deallocates.
    None,
}

impl Table {
    pub(super) fn new(columns: Columns) -> Self {
        Self {
            columns,
            separator: None,
        }
    }

    pub(super) fn format(&self) -> Columns {
        self.columns
    }

    pub(super) fn parse(&mut self, line: &[u8], digests: &mut Digests) -> Result<Parsed, Reason> {
        digests.clear();
        let is_first = self.separator.is_none();
        let separator = *self.separator.get_or_insert_with(|| Separator::of(line));

        let fields: Vec<&[u8]> = separator.split(line);
        let columns = self.columns.named();
        if fields.len() != columns.len() {
            return Err(format!(
                "{} fields instead of {}",
                fields.len(),
                columns.len()
            ));
        }
        if is_first && is_heading(columns, &fields) {
            return Ok(Parsed::Blank);
        }

        let mut read = Fields {
            at_ns: 0,
            device: 0,
            verb: None,
            extent: ByteExtent { offset: 0, len: 0 },
            digest: None,
        };
        for (column, field) in columns.iter().zip(fields) {
            read.take(*column, field)?;
        }
        read.request(digests)
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, column: Column, field: &'a [u8]) -> Result<(), Reason> {
        match column {
            Column::Skipped => {}
            Column::Time { unit } => self.at_ns = decimal(field, unit.ns(), "time")?,
            Column::Device => self.device = device(field),
            Column::Op => self.verb = Some(verb(field)?),
            Column::OpNumber { read } => {
                let (read, write) = if read == 0 { ("0", "1") } else { ("1", "0") };
                self.verb = Some(Verb::Request(verb_of(field, "op", read, write)?));
            }
            Column::Offset { unit } => self.extent.offset = unit.of(field, "offset")?,
            Column::Size { unit } => self.extent.len = unit.of(field, "size")?,
            Column::Digest => self.digest = Some(field),
        }
        Ok(())
    }

    fn request(self, digests: &mut Digests) -> Result<Parsed, Reason> {
        let verb = match self.verb {
            Some(Verb::Request(verb)) => verb,
            Some(Verb::Flush) => return Ok(Parsed::Flush(self.at_ns)),
            Some(Verb::None) | None => return Ok(Parsed::Ignored),
        };
        let parsed = self.extent.request(self.at_ns, self.device, verb)?;

        // After the check of the size, which bounds the number of digests.
        if let (Parsed::Request(_), RequestKind::Write, Some(digest)) = (parsed, verb, self.digest)
            && !digest.is_empty()
        {
            digests.of_request(digest, self.extent.len);
        }
        Ok(parsed)
    }
}

impl Separator {
    fn of(line: &[u8]) -> Self {
        let found = b",;\t".iter().find(|byte| line.contains(byte));
        found.map_or(Self::Blanks, |byte| Self::Byte(*byte))
    }

    fn split(self, line: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Blanks => super::record::words(line).map(unquoted).collect(),
            Self::Byte(separator) => line
                .split(|byte| *byte == separator)
                .map(|field| unquoted(field.trim_ascii()))
                .collect(),
        }
    }
}

/// Removes quotes around a field.
fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner,
        field => field,
    }
}

/// Returns true if there are names in place of numbers.
fn is_heading(columns: &[Column], fields: &[&[u8]]) -> bool {
    columns
        .iter()
        .zip(fields)
        .all(|(column, field)| match column {
            Column::Offset { .. } | Column::Size { .. } | Column::Time { .. } => {
                field.first().is_some_and(u8::is_ascii_alphabetic)
            }
            _ => true,
        })
}

fn verb(field: &[u8]) -> Result<Verb, Reason> {
    let name = field.to_ascii_lowercase();
    Ok(match &name[..] {
        b"r" | b"read" => Verb::Request(RequestKind::Read),
        b"w" | b"write" => Verb::Request(RequestKind::Write),
        b"d" | b"t" | b"discard" | b"trim" | b"unmap" | b"deallocate" => {
            Verb::Request(RequestKind::Trim)
        }
        b"f" | b"flush" | b"sync" => Verb::Flush,
        // Letters of the kernel, as `WS` or `FWFS`.
        _ if (1..=8).contains(&field.len()) && field.iter().all(u8::is_ascii_uppercase) => {
            verb_of_rwbs(field, Action::Completed)?.map_or(Verb::None, Verb::Request)
        }
        _ => return Err(format!("op `{}` is no operation", clip(field))),
    })
}

/// Number of a device: its own, or a hash of its name.
fn device(field: &[u8]) -> u64 {
    number(field, "device").unwrap_or_else(|_| xxhash_rust::xxh3::xxh3_64(field))
}
