//! The subset of Parquet needed for a small table: one row group, one plain uncompressed page per
//! column.
//!
//! ```text
//! "PAR1"  (page header, levels, values) for each column  file metadata  its length, 4 bytes  "PAR1"
//! ```
//! Headers and metadata are Thrift structs in the compact protocol (parquet-format's
//! `parquet.thrift`); words are UTF-8 byte arrays, numbers doubles. A column that may have nulls says
//! by its definition levels which rows have values; in one that may not, missing numbers are NaN. The `parquet`
//! crate takes an order of magnitude longer to build than the rest of this crate, for encodings,
//! compression and nesting that are not needed here. Invariant: the bytes depend on the columns
//! alone. Absent: reading files of other programs.

mod read;

pub use read::read_words;

/// A named column of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The column's name in the schema.
    pub name: String,
    /// The values there are, without nulls.
    values: Values,
    /// For each row whether it has a value; none if the column has no nulls.
    present: Option<Vec<bool>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Words(Vec<String>),
    Numbers(Vec<f64>),
    Integers(Vec<i64>),
    Booleans(Vec<bool>),
}

/// Values of a column, some of which are null.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Nullable {
    /// Text.
    Words(Vec<Option<String>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Truth values.
    Booleans(Vec<Option<bool>>),
}

impl Column {
    /// A column of text, stored as UTF-8 byte arrays.
    pub fn words(name: &str, values: Vec<String>) -> Self {
        Self::required(name, Values::Words(values))
    }

    /// A column of numbers; NaN for missing ones.
    pub fn numbers(name: &str, values: Vec<f64>) -> Self {
        Self::required(name, Values::Numbers(values))
    }

    /// A column that may have nulls.
    pub(crate) fn nullable(name: &str, values: Nullable) -> Self {
        fn split<T>(values: Vec<Option<T>>) -> (Vec<bool>, Vec<T>) {
            let present = values.iter().map(Option::is_some).collect();
            (present, values.into_iter().flatten().collect())
        }

        let (present, values) = match values {
            Nullable::Words(values) => {
                let (present, values) = split(values);
                (present, Values::Words(values))
            }
            Nullable::Numbers(values) => {
                let (present, values) = split(values);
                (present, Values::Numbers(values))
            }
            Nullable::Integers(values) => {
                let (present, values) = split(values);
                (present, Values::Integers(values))
            }
            Nullable::Booleans(values) => {
                let (present, values) = split(values);
                (present, Values::Booleans(values))
            }
        };
        Self {
            name: name.into(),
            values,
            present: Some(present),
        }
    }

    fn required(name: &str, values: Values) -> Self {
        Self {
            name: name.into(),
            values,
            present: None,
        }
    }

    /// Number of rows, the same for all columns of a table.
    pub fn rows(&self) -> usize {
        match (&self.present, &self.values) {
            (Some(present), _) => present.len(),
            (None, Values::Words(values)) => values.len(),
            (None, Values::Numbers(values)) => values.len(),
            (None, Values::Integers(values)) => values.len(),
            (None, Values::Booleans(values)) => values.len(),
        }
    }

    /// A value as text; empty if missing.
    pub fn cell(&self, row: usize) -> String {
        let at = match &self.present {
            Some(present) if !present[row] => return String::new(),
            Some(present) => present[..row].iter().filter(|is_there| **is_there).count(),
            None => row,
        };
        match &self.values {
            Values::Words(values) => values[at].clone(),
            Values::Numbers(values) if values[at].is_finite() => values[at].to_string(),
            Values::Numbers(_) => String::new(),
            Values::Integers(values) => values[at].to_string(),
            Values::Booleans(values) => values[at].to_string(),
        }
    }

    fn kind(&self) -> i64 {
        match self.values {
            Values::Words(_) => BYTE_ARRAY,
            Values::Numbers(_) => DOUBLE,
            Values::Integers(_) => INT64,
            Values::Booleans(_) => BOOLEAN,
        }
    }

    fn repetition(&self) -> i64 {
        if self.present.is_some() {
            OPTIONAL
        } else {
            REQUIRED
        }
    }

    /// The page of the column: its levels, then its values.
    fn page(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(present) = &self.present {
            let levels = levels(present);
            out.extend((levels.len() as u32).to_le_bytes());
            out.extend(levels);
        }

        match &self.values {
            Values::Words(values) => values.iter().for_each(|value| {
                out.extend((value.len() as u32).to_le_bytes());
                out.extend(value.as_bytes());
            }),
            Values::Numbers(values) => values
                .iter()
                .for_each(|value| out.extend(value.to_le_bytes())),
            Values::Integers(values) => values
                .iter()
                .for_each(|value| out.extend(value.to_le_bytes())),

            // Eight to a byte, the first in the lowest bit.
            Values::Booleans(values) => out.extend(values.chunks(8).map(|eight| {
                let bits = eight.iter().enumerate();
                bits.fold(0, |byte, (bit, value)| byte | u8::from(*value) << bit)
            })),
        }
        out
    }
}

/// Definition levels of one bit, in runs: twice the length of a run as a varint, then its level.
fn levels(present: &[bool]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in present.chunk_by(|one, next| one == next) {
        out.extend(varint((run.len() as u64) << 1));
        out.push(u8::from(run[0]));
    }
    out
}

// Constants of parquet.thrift.
const BOOLEAN: i64 = 0;
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;
const REQUIRED: i64 = 0;
const OPTIONAL: i64 = 1;
const UTF8: i64 = 0;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const UNCOMPRESSED: i64 = 0;
const DATA_PAGE: i64 = 0;

/// Location of a column's page.
struct Chunk {
    offset: i64,
    bytes: i64,
}

/// Encodes these columns, which have the same number of rows, as a file.
pub fn write(columns: &[Column]) -> Vec<u8> {
    let rows = columns.first().map_or(0, Column::rows);
    assert!(
        columns.iter().all(|column| column.rows() == rows),
        "every column has every row"
    );

    let mut out = b"PAR1".to_vec();
    let mut chunks = Vec::new();

    for column in columns {
        let offset = out.len() as i64;
        let page = column.page();

        // A PageHeader, with its DataPageHeader in field 5.
        let header = Struct::default()
            .int(1, I32, DATA_PAGE)
            .int(2, I32, page.len() as i64)
            .int(3, I32, page.len() as i64)
            .inner(
                5,
                Struct::default()
                    .int(1, I32, rows as i64)
                    .int(2, I32, PLAIN)
                    .int(3, I32, RLE)
                    .int(4, I32, RLE),
            );

        out.extend(header.end());
        out.extend(page);

        chunks.push(Chunk {
            offset,
            bytes: out.len() as i64 - offset,
        });
    }

    let metadata = metadata(columns, &chunks, rows as i64);
    out.extend(&metadata);
    out.extend((metadata.len() as u32).to_le_bytes());
    out.extend(b"PAR1");

    out
}

fn metadata(columns: &[Column], chunks: &[Chunk], rows: i64) -> Vec<u8> {
    // The schema is a tree, depth first: the root with the number of its children, then each
    // column.
    let root = Struct::default()
        .text(4, "schema")
        .int(5, I32, columns.len() as i64);

    let field = |column: &Column| {
        let field = Struct::default()
            .int(1, I32, column.kind())
            .int(3, I32, column.repetition())
            .text(4, &column.name);
        if column.kind() == BYTE_ARRAY {
            field.int(6, I32, UTF8)
        } else {
            field
        }
    };

    let schema = std::iter::once(root)
        .chain(columns.iter().map(field))
        .collect();

    let chunk = |(column, chunk): (&Column, &Chunk)| {
        let about = Struct::default()
            .int(1, I32, column.kind())
            .list(2, I32, vec![zigzag(PLAIN), zigzag(RLE)])
            .list(3, BINARY, vec![text(&column.name)])
            .int(4, I32, UNCOMPRESSED)
            .int(5, I64, rows)
            .int(6, I64, chunk.bytes)
            .int(7, I64, chunk.bytes)
            .int(9, I64, chunk.offset);

        Struct::default().int(2, I64, chunk.offset).inner(3, about)
    };

    let group = Struct::default()
        .structs(1, columns.iter().zip(chunks).map(chunk).collect())
        .int(2, I64, chunks.iter().map(|chunk| chunk.bytes).sum())
        .int(3, I64, rows);

    Struct::default()
        .int(1, I32, 1)
        .structs(2, schema)
        .int(3, I64, rows)
        .structs(4, vec![group])
        .text(6, "remap-ssd")
        .end()
}

// Types of Thrift's compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A Thrift struct being written; fields in ascending order.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn field(mut self, id: u8, kind: u8, value: Vec<u8>) -> Self {
        assert!(
            id > self.last && id - self.last <= 15,
            "fields ascend in short steps"
        );
        self.bytes.push((id - self.last) << 4 | kind);
        self.bytes.extend(value);
        self.last = id;
        self
    }

    fn int(self, id: u8, kind: u8, value: i64) -> Self {
        self.field(id, kind, zigzag(value))
    }

    fn text(self, id: u8, value: &str) -> Self {
        self.field(id, BINARY, text(value))
    }

    fn inner(self, id: u8, inner: Struct) -> Self {
        self.field(id, STRUCT, inner.end())
    }

    fn list(self, id: u8, kind: u8, items: Vec<Vec<u8>>) -> Self {
        // A short list has its length in its type byte.
        let mut out = match items.len() {
            short if short < 15 => vec![(short as u8) << 4 | kind],
            long => {
                let mut out = vec![0xf0 | kind];
                out.extend(varint(long as u64));
                out
            }
        };
        out.extend(items.into_iter().flatten());
        self.field(id, LIST, out)
    }

    fn structs(self, id: u8, items: Vec<Struct>) -> Self {
        self.list(id, STRUCT, items.into_iter().map(Struct::end).collect())
    }

    fn end(mut self) -> Vec<u8> {
        // A field of type 0 ends a struct.
        self.bytes.push(0);
        self.bytes
    }
}

fn text(value: &str) -> Vec<u8> {
    let mut out = varint(value.len() as u64);
    out.extend(value.as_bytes());
    out
}

fn zigzag(value: i64) -> Vec<u8> {
    varint(((value << 1) ^ (value >> 63)) as u64)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // The `parquet` crate has read these bytes back; repeat that check after any change.
    #[test]
    fn a_small_file_is_what_other_readers_accept() {
        let columns = [
            Column::words("scheme", vec!["none".into(), "remap-ssd".into()]),
            Column::numbers("iops", vec![1.5, f64::NAN]),
        ];
        let bytes = write(&columns);
        assert_eq!(
            (&bytes[..4], &bytes[bytes.len() - 4..]),
            (&b"PAR1"[..], &b"PAR1"[..])
        );
        assert_eq!(blake3::hash(&bytes).to_hex()[..16], *"ca6920ac92d3d950");
        assert_eq!(
            (columns[1].cell(0), columns[1].cell(1)),
            ("1.5".into(), String::new())
        );
    }

    // The `parquet` crate and pyarrow have read these bytes back; `python/tests` compares each column.
    #[test]
    fn nulls_are_levels_and_take_no_place_among_the_values() {
        let columns = [
            Column::nullable("seed", Nullable::Integers(vec![Some(1), None, Some(-3)])),
            Column::nullable(
                "dedup",
                Nullable::Booleans(vec![Some(true), Some(false), None]),
            ),
            Column::nullable("p99", Nullable::Numbers(vec![None; 3])),
            Column::nullable(
                "gc",
                Nullable::Words(vec![None, Some("greedy".into()), None]),
            ),
        ];

        // A run of one value, one null, one value; then the two values.
        let mut page = vec![6, 0, 0, 0, 2, 1, 2, 0, 2, 1];
        page.extend([1i64, -3].iter().flat_map(|value| value.to_le_bytes()));
        assert_eq!(columns[0].page(), page);
        assert_eq!(columns[1].page(), [4, 0, 0, 0, 4, 1, 2, 0, 1]);
        assert_eq!(columns[2].page(), [2, 0, 0, 0, 6, 0]);
        assert!(columns.iter().all(|column| column.rows() == 3));

        let cells = |row: usize| columns.iter().map(|column| column.cell(row)).collect();
        let (first, second): (Vec<String>, Vec<String>) = (cells(0), cells(1));
        assert_eq!(first, ["1", "true", "", ""]);
        assert_eq!(second, ["", "false", "", "greedy"]);
    }

    #[test]
    fn a_column_of_text_is_read_back_and_damaged_files_have_none() {
        let text = |row: usize| format!("{{\"row\":{row},\"long\":\"{}\"}}", "ä".repeat(300 * row));
        let mut columns: Vec<Column> = (0..40)
            .map(|at| {
                Column::required(
                    &format!("figure.{at}"),
                    Values::Integers(vec![at, -at, i64::MIN]),
                )
            })
            .collect();
        columns.push(Column::words("run", (0..3).map(text).collect()));
        let bytes = write(&columns);
        let read = read_words(&bytes, "run").unwrap();
        assert_eq!(read, [text(0), text(1), text(2)]);
        assert_eq!(read_words(&bytes, "walk"), None);
        assert_eq!(read_words(&bytes, "figure.3"), None, "no text");

        for end in 0..bytes.len() {
            assert_eq!(read_words(&bytes[..end], "run"), None, "torn at {end}");
        }
        // Any damaged byte: an answer, and no panic.
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = read_words(&damaged, "run");
            }
        }
    }
}
