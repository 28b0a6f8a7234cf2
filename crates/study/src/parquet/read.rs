//! Reads a column of text from a file written by this program.
//!
//! Folders may be writable by others: a file with any other contents has no such column. Absent:
//! encodings, compression, pages and row groups that `write` never produces.

use std::collections::BTreeMap;

/// Maximum nesting of structs: hostile bytes must not exhaust the stack.
const DEPTH_MAX: u32 = 16;

/// Returns the values of a text column without nulls; `None` if the file has no such column or
/// another format.
pub fn read_words(bytes: &[u8], name: &str) -> Option<Vec<String>> {
    let inner = bytes.strip_prefix(b"PAR1")?.strip_suffix(b"PAR1")?;
    let (rest, length) = inner.split_last_chunk::<4>()?;
    let start = rest
        .len()
        .checked_sub(u32::from_le_bytes(*length) as usize)?;
    let metadata = structure(&mut &rest[start..], 0)?;

    // FileMetaData.row_groups[0].columns[..].meta_data, where path_in_schema names the column.
    let [Item::Struct(group)] = &metadata.get(&4)?.list()?[..] else {
        return None;
    };
    let chunk = group.get(&1)?.list()?.iter().find_map(|column| {
        let about = column.structure()?.get(&3)?.structure()?;
        let [Item::Bytes(path)] = &about.get(&3)?.list()?[..] else {
            return None;
        };
        (path == name.as_bytes()).then_some(about)
    })?;
    let (kind, codec) = (chunk.get(&1)?.int()?, chunk.get(&4)?.int()?);
    if (kind, codec) != (super::BYTE_ARRAY, super::UNCOMPRESSED) {
        return None;
    }

    // The page's header, then each value after its length.
    let mut page = bytes.get(usize::try_from(chunk.get(&9)?.int()?).ok()?..)?;
    let header = structure(&mut page, 0)?;
    let about = header.get(&5)?.structure()?;
    if about.get(&2)?.int()? != super::PLAIN {
        return None;
    }
    let mut values = page.get(..usize::try_from(header.get(&3)?.int()?).ok()?)?;
    let mut words = Vec::new();
    for _ in 0..about.get(&1)?.int()? {
        let (length, rest) = values.split_first_chunk::<4>()?;
        let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        words.push(String::from_utf8(word.to_vec()).ok()?);
        values = rest;
    }
    Some(words)
}

/// A value of Thrift's compact protocol.
enum Item {
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Item>),
    Struct(Fields),
}

type Fields = BTreeMap<i64, Item>;

impl Item {
    fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn list(&self) -> Option<&Vec<Item>> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    fn structure(&self) -> Option<&Fields> {
        match self {
            Self::Struct(fields) => Some(fields),
            _ => None,
        }
    }
}

fn structure(bytes: &mut &[u8], depth: u32) -> Option<Fields> {
    let (mut fields, mut last) = (Fields::new(), 0);
    loop {
        let head = byte(bytes)?;
        if head == 0 {
            return Some(fields);
        }
        // Long field deltas are never written.
        let step = head >> 4;
        if step == 0 {
            return None;
        }
        last += i64::from(step);
        fields.insert(last, item(bytes, head & 0xf, depth)?);
    }
}

fn item(bytes: &mut &[u8], kind: u8, depth: u32) -> Option<Item> {
    if depth == DEPTH_MAX {
        return None;
    }

    match kind {
        super::I32 | super::I64 => {
            // Zigzag: the sign is the lowest bit.
            let value = varint(bytes)?;
            Some(Item::Int((value >> 1) as i64 ^ -((value & 1) as i64)))
        }
        super::BINARY => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (text, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(Item::Bytes(text.to_vec()))
        }
        super::LIST => {
            let head = byte(bytes)?;
            // Up to 14 items are counted in the head; 15 means that a number follows.
            let count = match head >> 4 {
                15 => varint(bytes)?,
                short => u64::from(short),
            };
            // A false count stops at the end of the bytes, and allocates nothing before.
            let items = (0..count).map(|_| item(bytes, head & 0xf, depth + 1));
            Some(Item::List(items.collect::<Option<_>>()?))
        }
        super::STRUCT => Some(Item::Struct(structure(bytes, depth + 1)?)),
        _ => None,
    }
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(value);
        }
    }
    None
}
