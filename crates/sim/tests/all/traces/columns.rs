//! Text in columns named by the user.

use remap_ssd_sim::source::PageKind;
use remap_ssd_sim::trace::Format;

use super::kit::{options, page, refusal, replay};

#[test]
fn columns_that_the_user_names_are_read_by_their_units() {
    use PageKind::{Read, ReadModifyWrite, Write};
    const S: u64 = 1_000_000_000;
    let expected = [
        page(0, 1, 0, Write, true),
        page(S, 2, 8, Write, false),
        page(S, 3, 9, Write, true),
        page(2 * S, 4, 3, ReadModifyWrite, true),
        page(3 * S, 0, 1, Read, false),
        page(3 * S, 0, 2, Read, true),
    ];
    let named = [
        (
            "csv:op,time_ms,size_bytes,offset_sectors,device,digest",
            include_str!("../../traces/samples/columns.csv"),
        ),
        (
            "csv:time_s,op_0r1w,offset_pages,size_kib",
            "0 1 0 4\n1.0 1 8 8\n2 1 3 1\n3 0 1 8\n",
        ),
        (
            "csv:offset_kib,size_sectors,op_0w1r,time_100ns,-",
            "\"0\",8,0,5,\"x\"\n32,16,0,10000005,\n12,4,0,20000005,y\n4,16,1,30000005,z\n",
        ),
        (
            "csv:time_us,op,offset_bytes,size_bytes",
            "when\tverb\tplace\tlength\n0\tWrite\t0\t4096\n1000000\tw\t32768\t8192\n2000000\tFWFS\t12288\t1\n3000000\tRA\t4096\t8192\n",
        ),
    ];
    for (format, text) in named {
        let format: Format = format.parse().unwrap();
        let found = replay(text.as_bytes(), Some(format), options()).unwrap();
        assert_eq!(found, expected, "{format}");
        assert_eq!(format.to_string().parse(), Ok(format));
    }

    // Equal digests are equal contents, page by page.
    let digests: Format = "csv:op,offset_pages,size_pages,digest".parse().unwrap();
    let text = b"w,0,2,abc\nw,8,2,abc\nw,16,1,abc\nw,24,1,\nw,32,1,abd\n";
    let contents: Vec<u64> = replay(text, Some(digests), options())
        .unwrap()
        .iter()
        .map(|page| page.content)
        .collect();
    assert_eq!(contents, [1, 2, 1, 2, 1, 3, 4]);
}

#[test]
fn lists_of_columns_that_cannot_be_and_lines_that_do_not_fit_are_refused() {
    let lists = [
        ("csv:", "unknown column ``: one of time_ns"),
        ("csv:time,op", "unknown column `time`: one of time_ns"),
        (
            "csv:op,offset_bytes",
            "csv: no column says size_bytes, size_sectors, size_kib or size_pages",
        ),
        (
            "csv:op,op_0r1w,offset_bytes,size_bytes",
            "csv: only one column can be op, op_0r1w or op_0w1r",
        ),
        (
            "csv:-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-,-",
            "csv: more than 24 columns",
        ),
    ];
    for (list, expected) in lists {
        let error = list.parse::<Format>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{list}: {error}");
    }

    let format: Format = "csv:time_s,op,offset_bytes,size_bytes".parse().unwrap();
    let lines = [
        ("1,r,0,512,x", ":1: 5 fields instead of 4"),
        ("1,r,0", ":1: 3 fields instead of 4"),
        ("1,erase,0,512", ":1: op `erase` is no operation"),
        ("1,r,0,512\nt,r,0,512", ":2: time `t` is not a number"),
        ("1,r,0,512\n1.,r,0,512", ":2: time `1.` is not a number"),
        ("1,r,0,512\n1,r,-8,512", ":2: offset `-8` is not a number"),
        (
            "99999999999999,r,0,512",
            ":1: time `99999999999999` is too large",
        ),
    ];
    for (text, expected) in lines {
        let said = refusal(text.as_bytes(), Some(format));
        assert!(said.contains(expected), "{text}: {said}");
    }
}
