//! FORMAT.md describes the records declared in the code, and contains their hash.

use std::path::{Path, PathBuf};

/// Files with persistent records, and the items that define content and place; an empty list means
/// the whole file.
const RECORDS: &[(&str, &[&str])] = &[
    ("crates/media/src/oob.rs", &[]),
    (
        "crates/media/src/image_file.rs",
        &[
            "const VERSION",
            "const MAGIC",
            "struct ImageHeader",
            "fn write",
            "fn write_superblock",
        ],
    ),
    ("crates/media/src/folder/journal.rs", &[]),
    (
        "crates/media/src/folder/witness.rs",
        &[
            "const MAGIC",
            "const JOURNAL_AT",
            "struct WitnessRecord",
            "fn sum",
            "fn slot",
            "fn offset",
            "fn at",
        ],
    ),
    (
        "crates/media/src/folder/state.rs",
        &[
            "const MAGIC",
            "const VERSION",
            "struct StateHeader",
            "fn write",
            "fn kinds",
        ],
    ),
    ("crates/media/src/pages.rs", &["fn page"]),
    (
        "crates/device/src/fingerprints.rs",
        &[
            "const MAGIC",
            "const VERSION",
            "struct FingerprintsHeader",
            "struct FingerprintRecord",
            "fn number",
            "fn write_fingerprints",
        ],
    ),
    (
        "crates/media/src/geometry.rs",
        &["fn page", "fn block", "fn offset_of"],
    ),
    (
        "crates/media/src/word_line.rs",
        &["const PAGE_BYTES", "fn to_code"],
    ),
    ("crates/ftl/src/config/layout.rs", &[]),
    (
        "crates/ftl/src/superblock/life.rs",
        &["struct Life", "struct LifeRecord"],
    ),
    ("crates/ftl/src/config/mod.rs", &["const CHUNK_LPNS"]),
    (
        "crates/ftl/src/config/sizes.rs",
        &["fn tail_records", "fn tail_pages"],
    ),
    (
        "crates/ftl/src/superblock/mod.rs",
        &["enum Stream", "fn head_offset", "fn tail_offsets"],
    ),
    (
        "crates/ftl/src/superblock/open.rs",
        &["struct SuperblockHead", "const MAGIC"],
    ),
    (
        "crates/ftl/src/records/dealloc.rs",
        &[
            "struct DeallocWhen",
            "struct DeallocWhat",
            "fn word",
            "fn bitmap",
        ],
    ),
    (
        "crates/ftl/src/records/doubts.rs",
        &["struct DoubtsHeader", "struct DoubtRun", "fn encode"],
    ),
    ("crates/ftl/src/records/files/record.rs", &[]),
    (
        "crates/ftl/src/records/buffer.rs",
        &["struct SlotOwner", "fn words", "fn store"],
    ),
    ("crates/ftl/src/error.rs", &["const LOST"]),
    ("crates/ftl/src/verbs/hybrid.rs", &["const PAD"]),
    ("crates/ftl/src/scheme/entry.rs", &[]),
    (
        "crates/ftl/src/records/atomic.rs",
        &["struct SlotWord", "fn idle_word"],
    ),
    (
        "crates/ftl/src/scheme/log_entry.rs",
        &[
            "const ENTRIES_PER_PAGE",
            "const UNNUMBERED",
            "struct LogEntry",
        ],
    ),
    (
        "crates/ftl/src/scheme/log_pages.rs",
        &["const UNIT", "fn program_parity", "fn add"],
    ),
    (
        "crates/ftl/src/scheme/group_log/page.rs",
        &[
            "const ENTRIES_MAX",
            "const ENTRY_BYTES",
            "struct GroupOwner",
            "struct GroupPlace",
            "fn encode",
            "fn entries",
        ],
    ),
    (
        "crates/ftl/src/scheme/group_log/mod.rs",
        &["const PAGES_MIN", "fn slots"],
    ),
    (
        "crates/ftl/src/scheme/local_flash.rs",
        &["const SLOT_WORDS", "fn slots", "fn word"],
    ),
    (
        "crates/ftl/src/scheme/segments/head.rs",
        &["struct SegmentHead", "struct SegmentLink"],
    ),
    (
        "crates/ftl/src/scheme/remap_ssd_x/extent.rs",
        &[
            "const SLOT_WORDS",
            "const PAGES_MAX",
            "struct ExtentSpan",
            "fn words",
        ],
    ),
    (
        "crates/ftl/src/scheme/segments/mod.rs",
        &["fn word", "fn slot_word"],
    ),
    (
        "crates/ftl/src/scheme/nlog/mod.rs",
        &[
            "const UNIT_ENTRIES_MAX",
            "const UNITS_MIN",
            "const SLOT_WORDS",
            "struct UnitHead",
            "fn word",
        ],
    ),
    (
        "crates/ftl/src/scheme/pebble/mod.rs",
        &[
            "struct RoomHead",
            "struct OwnerSlot",
            "fn nvram_words",
            "fn slot_word",
        ],
    ),
    (
        "crates/ftl/src/scheme/shadow_oob/saved.rs",
        &[
            "const ENTRIES_MAX",
            "const PAGES_MIN",
            "const FAILURES",
            "const SLOT_WORDS",
            "struct SavedOf",
            "struct SavedPlace",
            "fn encode",
            "fn new",
            "fn area_word",
            "fn slot_word",
        ],
    ),
    (
        "crates/ftl/src/scheme/wal/record.rs",
        &["const SLOT_WORDS", "struct CommitRecord"],
    ),
    ("crates/ftl/src/scheme/wal/mod.rs", &["fn word"]),
    (
        "crates/ftl/src/scheme/flog/mod.rs",
        &[
            "const PAGES_MIN",
            "const BUFFER_WORDS",
            "fn shape",
            "fn word",
        ],
    ),
    (
        "crates/device/src/superblocks.rs",
        &["const SUPERBLOCKS", "const CRC_FROM", "fn superblock_crc"],
    ),
    (
        "hosts/store/src/volume/format.rs",
        &[
            "const MAGIC",
            "const VERSION",
            "const EXTENTS_MAX",
            "struct SuperblockRecord",
            "struct InodeRecord",
            "struct ExtentRecord",
            "struct LineageRecord",
            "const LINEAGE_EXTENTS",
            "const INODE_CRC_FROM",
            "const OPEN_END",
            "const LINEAGE",
            "fn inode_crc",
        ],
    ),
    (
        "hosts/dedup/src/superblock.rs",
        &[
            "const MAGIC",
            "const VERSION",
            "fn number",
            "struct SuperblockRecord",
            "fn hash_number",
            "fn crc",
        ],
    ),
    (
        "hosts/dedup/src/signature.rs",
        &["const SIGNATURE_BYTES", "const UNKNOWN", "fn signature"],
    ),
    ("hosts/dedup/src/ccaw/format.rs", &[]),
    ("hosts/dedup/src/ordermerge/format.rs", &[]),
    ("hosts/share/src/record.rs", &[]),
    (
        "hosts/share/src/files.rs",
        &[
            "struct Manifest",
            "fn manifest",
            "fn encode",
            "fn copy_name",
        ],
    ),
];

const MARK: &str = "record-code: ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code without comments and white space.
fn bare(source: &str) -> String {
    let code = source
        .lines()
        .map(|line| line.find("//").map_or(line, |at| &line[..at]));
    code.flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect()
}

/// An item's text from its name to its end: a `;` or its closing brace, whichever comes first.
fn item<'a>(file: &str, source: &'a str, name: &str) -> &'a str {
    let boundary = |at: &usize| {
        !source[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
    };
    let at = source.match_indices(name).map(|(at, _)| at).find(boundary);
    let start = at.unwrap_or_else(|| {
        panic!(
            "{file} has no `{name}` any more: adapt the list in {}",
            file!()
        )
    });

    let mut depth = 0;
    for (at, c) in source[start..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (c == ';' || c == '}') {
            return &source[start..=start + at];
        }
    }
    panic!("{file}: `{name}` does not end");
}

fn hash() -> String {
    let mut hash = blake3::Hasher::new();
    for (file, items) in RECORDS {
        let source = std::fs::read_to_string(root().join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let pieces = match items {
            [] => vec![source.as_str()],
            items => items.iter().map(|name| item(file, &source, name)).collect(),
        };
        for piece in pieces {
            hash.update(bare(piece).as_bytes());
        }
    }
    hash.finalize().to_hex()[..32].to_owned()
}

#[test]
fn the_format_page_belongs_to_the_record_code() {
    let path = root().join("FORMAT.md");
    let page = std::fs::read_to_string(&path).expect("FORMAT.md can be read");
    let at = page
        .find(MARK)
        .expect("FORMAT.md has the line of the record code")
        + MARK.len();
    let kept = page[at..]
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned();

    let hash = hash();
    #[expect(clippy::disallowed_methods, reason = "a test may be told to update its page")]
    let update = std::env::var_os("UPDATE_FORMAT").is_some();

    if update {
        let page = format!("{}{hash}{}", &page[..at], &page[at + kept.len()..]);
        std::fs::write(&path, page).expect("FORMAT.md can be written");
        return;
    }

    assert_eq!(
        kept, hash,
        "the code of a persisted record has changed. Read FORMAT.md, correct what it says, and write the new hash \
         with: UPDATE_FORMAT=1 cargo test -p remap-ssd-media --test all format"
    );
}

#[test]
fn the_hash_sees_code_and_no_comments() {
    assert_eq!(bare("a // b\n  c"), "ac");
    assert_eq!(
        item(
            "x",
            "const AB: u8 = 2;\nconst A: [u8; 2] = [1; 2];",
            "const A"
        ),
        "const A: [u8; 2] = [1; 2];"
    );
    assert_eq!(
        item("x", "struct AB { b: u8 }\nstruct A { a: u8 }", "struct A"),
        "struct A { a: u8 }"
    );
}
