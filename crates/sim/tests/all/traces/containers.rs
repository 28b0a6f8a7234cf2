//! Containers of traces: compression with padding or distant references, archives, byte order
//! marks.

use remap_ssd_sim::trace::Format;

use super::kit::{gzip, options, read_as, refusal, told, vscsi_v1, zstd};

#[test]
fn archives_and_compression_that_is_not_read_are_named_by_their_first_bytes() {
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"m.csv");
    tar[257..262].copy_from_slice(b"ustar");

    let files: [(&[u8], &str); 8] = [
        (&tar, "a tar archive: extract it"),
        (&gzip(&tar), "a tar archive: extract it"),
        (b"BZh91AY&SY", "compressed by bzip2"),
        (b"\x04\x22\x4d\x18xxxx", "compressed by lz4"),
        (b"PK\x03\x04xxxxxxxx", "a zip archive: extract it"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "a 7z archive: extract it"),
        (b"\x5d\0\0\x80\0\xff\xff", "compressed by lzma"),
        (b"PAR1xxxxPAR1", "an Apache Parquet file"),
    ];
    for (bytes, what) in files {
        // Whatever format is named.
        for format in [None, Some(Format::Msr)] {
            let said = refusal(bytes, format);
            assert!(said.contains(&format!(": {what}")), "{said}");
        }
    }
}

#[test]
fn zeros_after_a_stream_of_gzip_are_padding_and_anything_else_is_damage() {
    let (a, b) = (gzip(b"1,W,0,4096,7\n"), gzip(b"1,R,0,4096,8\n"));
    let zeros = vec![0; 70_000];
    for (parts, requests) in [
        (vec![&a, &zeros], 1),
        (vec![&a, &b], 2),
        (vec![&a, &zeros, &b, &zeros], 2),
    ] {
        let bytes: Vec<u8> = parts.into_iter().flatten().copied().collect();
        assert_eq!(told(&bytes).requests(), requests);
    }

    let damaged = [&a[..], b"rubbish"].concat();
    assert!(refusal(&damaged, None).contains("the gzip stream is damaged or cut"));
    for len in 1..a.len() {
        assert!(read_as(&a[..len], None, options()).is_err(), "{len} bytes");
    }

    // The last three bytes are also zeros.
    for len in 1..a.len() - 3 {
        let padded = [&a[..len], &zeros].concat();
        assert!(read_as(&padded, None, options()).is_err(), "{len} bytes");
    }
}

#[test]
fn a_frame_of_zstd_that_refers_far_back_is_read() {
    let line = b"1,W,0,4096,7\n";
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    packer.long_distance_matching(true).unwrap();
    packer.window_log(28).unwrap();
    std::io::Write::write_all(&mut packer, &line.repeat(1000)).unwrap();
    let bytes = packer.finish().unwrap();
    assert_eq!(told(&bytes).requests(), 1000);
    assert_eq!(told(&zstd(line)).requests(), 1);
}

#[test]
fn the_mark_of_utf_8_text_is_passed_over_and_utf_16_is_named() {
    let text = b"\xef\xbb\xbf1,W,0,4096,7\n1,R,0,4096,8\n";
    assert_eq!(told(text).requests(), 2);
    assert_eq!(told(&gzip(text)).requests(), 2);
    assert!(refusal(b"\xff\xfe1\0,\0", None).contains("UTF-16"));

    // Binary records may begin with these bytes.
    let mut record = vscsi_v1((0x2a, 8, 4096, 1));
    record[..4].copy_from_slice(b"\xef\xbb\xbf\0");
    let reader = read_as(&record, Some(Format::Vscsi), options()).unwrap();
    assert_eq!(reader.requests(), 1);
}
