//! Binary records of SCSI commands: whether a file is cut or is another file.

use remap_ssd_sim::trace::Format;

use super::kit::{refusal, vscsi_v1, vscsi_v2};

#[test]
fn a_file_that_is_shorter_than_a_record_is_cut_and_another_is_of_no_version() {
    for (len, cause) in [
        (1, "cut: 1 bytes of at least 32"),
        (31, "cut: 31 bytes of at least 32"),
        (32, "a record of neither version 1 nor version 2"),
        (33, "a record of neither version 1 nor version 2"),
        (40, "a record of neither version 1 nor version 2"),
    ] {
        let said = refusal(&vec![7; len], Some(Format::Vscsi));
        assert!(said.contains(cause), "{len} bytes: {said}");
    }
}

/// A record of version 2 has 40 bytes: it is cut at 39, while one of version 1 is whole at 32.
#[test]
fn a_record_is_cut_by_the_size_of_its_version() {
    let command = (0x2a, 8, 4096, 1);
    let (v1, v2) = (vscsi_v1(command), vscsi_v2(command));
    assert_eq!((v1.len(), v2.len()), (32, 40));

    let whole = [&v2[..], &v2[..39]].concat();
    let said = refusal(&whole, Some(Format::Vscsi));
    assert!(said.contains("cut: 39 of 40 bytes"), "{said}");
    let whole = [&v1[..], &v1[..31]].concat();
    let said = refusal(&whole, Some(Format::Vscsi));
    assert!(said.contains("cut: 31 of 32 bytes"), "{said}");
}
