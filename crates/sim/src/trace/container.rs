//! Files that are not traces but contain or compress them: detected by their first bytes, with
//! advice for the user.
//!
//! Absent: supported compression (`input.rs`): gzip, xz and zstd.

/// First bytes, and the advice.
const CONTAINERS: [(&[u8], &str); 17] = [
    (b"BZh", "compressed by bzip2: `bunzip2` makes a trace of it"),
    (
        b"\x04\x22\x4d\x18",
        "compressed by lz4: `unlz4` makes a trace of it",
    ),
    (b"LZIP", "compressed by lzip: `lzip -d` makes a trace of it"),
    (
        b"\x89LZO\0",
        "compressed by lzop: `lzop -d` makes a trace of it",
    ),
    (
        b"\x5d\0\0",
        "compressed by lzma: `unlzma` makes a trace of it",
    ),
    (
        b"\x1f\x9d",
        "compressed by compress: `uncompress` makes a trace of it",
    ),
    (
        b"\xff\x06\0\0sNaPpY",
        "compressed by snappy: decompress it first",
    ),
    (
        b"PK\x03\x04",
        "a zip archive: extract it (`unzip`) and name a trace that was in it",
    ),
    (b"PK\x05\x06", "an empty zip archive"),
    (
        b"7z\xbc\xaf\x27\x1c",
        "a 7z archive: extract it (`7z x`) and name a trace that was in it",
    ),
    (
        b"Rar!\x1a\x07",
        "a RAR archive: extract it (`unrar x`) and name a trace that was in it",
    ),
    (
        b"PAR1",
        "an Apache Parquet file: the Python package replays tables, `trace=pyarrow.parquet.read_table(FILE)`",
    ),
    (
        b"ARROW1\0\0",
        "an Apache Arrow file: the Python package replays tables, `trace=TABLE`",
    ),
    (b"SQLite format 3\0", "an SQLite database and no trace"),
    (
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file: write its requests as text, see `--format csv:COLUMNS`",
    ),
    (
        b"\xff\xfe",
        "text in UTF-16: `iconv -f UTF-16 -t UTF-8` makes a trace of it",
    ),
    (
        b"\xfe\xff",
        "text in UTF-16: `iconv -f UTF-16 -t UTF-8` makes a trace of it",
    ),
];

/// Offset of the magic number in a tar archive.
const TAR_MAGIC_AT: usize = 257;

/// Returns the description of a file with these first bytes, if it is one of these.
pub(super) fn named(sample: &[u8]) -> Option<&'static str> {
    let is_tar = sample
        .get(TAR_MAGIC_AT..)
        .is_some_and(|rest| rest.starts_with(b"ustar"));
    if is_tar {
        return Some("a tar archive: extract it (`tar xf FILE`) and name a trace that was in it");
    }
    CONTAINERS
        .iter()
        .find(|(magic, _)| sample.starts_with(magic))
        .map(|(_, what)| *what)
}
