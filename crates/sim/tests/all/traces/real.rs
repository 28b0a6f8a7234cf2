//! Output of real recorders, as published: headings, requests of no bytes, concatenated logs,
//! events out of order and of other actions.

use remap_ssd_sim::source::{PageKind, Source};
use remap_ssd_sim::trace::{Action, Decoded, Format, TraceOptions, TraceReader};

use super::kit::{
    BLKPARSE, drain, file_of, options, page, read_as, refusal, replay, told, vscsi_v1,
};

#[test]
fn published_headings_are_no_records_wherever_files_were_put_together() {
    let traces = [
        (
            Format::Msr,
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            "128166372003000000,hm,0,Read,0,4096,100",
        ),
        (
            Format::Tencent,
            "Timestamp,Offset,Size,IOType,VolumeID",
            "1538323199,8,8,1,1283",
        ),
        (
            Format::Alibaba,
            "device_id,opcode,offset,length,timestamp",
            "3,W,0,4096,1577808000000000",
        ),
        (
            Format::Systor,
            "Timestamp,Response,IOType,LUN,Offset,Size",
            "1577808000.000000000,,W,4,0,4096",
        ),
        (
            Format::CloudPhysics,
            "version,time,op,size,lbn",
            "1,5633898,2a,512,42932745",
        ),
        (
            Format::Spc,
            "ASU, LBA, Size, Opcode, Timestamp",
            "0,20941264,8192,W,0.551706",
        ),
    ];
    for (format, heading, record) in traces {
        let text = format!("{heading}\n{record}\n{heading}\r\n{record}\n");
        let reader = told(text.as_bytes());
        assert_eq!(reader.format(), format);
        assert_eq!((reader.requests(), reader.ignored()), (2, 0), "{format}");

        // Custom names, in the first line only.
        let own = format!("when,what,a b,c_d,e(f),g,h\n{record}\n");
        let own = own.replacen(",g,h", &",x".repeat(record.matches(',').count() - 4), 1);
        assert_eq!(told(own.as_bytes()).requests(), 1, "{own}");
        let later = format!("{record}\nwhen,what,a,b,c\n");
        assert!(refusal(later.as_bytes(), None).contains(":2: "), "{format}");
    }
}

#[test]
fn requests_of_no_bytes_are_counted_as_ignored_and_tell_the_format_all_the_same() {
    let md5 = "0a".repeat(16);
    let vscsi: Vec<u8> = [(0x2a, 0, 0, 0), (0x2a, 8, 0, 1), (0x2a, 8, 4096, 2)]
        .into_iter()
        .flat_map(vscsi_v1)
        .collect();
    let oracle: Vec<u8> = [(1u64, 0u32), (2, 4096), (3, 0)]
        .into_iter()
        .flat_map(|(object, len)| {
            let mut record = vec![9, 0, 0, 0];
            record.extend(object.to_le_bytes());
            record.extend(len.to_le_bytes());
            record.extend((-1i64).to_le_bytes());
            record
        })
        .collect();
    let fiu = format!("1 1 p 0 8 W 6 0 {md5}\n");

    let traces: [(Format, &[u8], u64); 12] = [
        (Format::Msr, b"1,h,0,Read,0,0,1\n2,h,0,Read,0,512,1\n", 1),
        (Format::Alibaba, b"3,W,0,0,1\n3,W,0,4096,2\n", 1),
        (Format::Tencent, b"1,0,0,1,9\n1,0,8,1,9\n", 1),
        (Format::Systor, b"1.5,,R,0,0,0\n1.5,,R,0,0,512\n", 1),
        (Format::Spc, b"0,0,0,W,0.5\n0,0,512,W,0.5\n", 1),
        (Format::DiskSim, b"1.5 0 8 0 1\n1.5 0 8 8 1\n", 1),
        (Format::Mqsim, b"1 0 8 0 0\n1 0 9 8 0\n", 1),
        (
            Format::Fio,
            b"fio version 3 iolog\n1 /a read 0 0\n2 /a read 0 4096\n",
            1,
        ),
        (
            Format::Blkparse,
            b"8,0 3 2 0.1 697 Q W 22 + 0 [k]\n8,0 3 3 0.1 697 Q W 22 + 8 [k]\n",
            1,
        ),
        (Format::Vscsi, &vscsi, 2),
        (Format::OracleGeneral, &oracle, 2),
        (Format::Fiu, fiu.as_bytes(), 0),
    ];
    for (format, bytes, empty) in traces {
        let reader = told(bytes);
        assert_eq!(reader.format(), format);
        assert_eq!(
            (reader.requests(), reader.ignored()),
            (1, empty),
            "{format}"
        );
    }
}

#[test]
fn a_damaged_record_among_the_first_makes_vscsi_no_trace_of_objects() {
    let good: Vec<u8> = (0..6u64)
        .flat_map(|at| vscsi_v1((0x2a, 8 * at, 4096, at)))
        .collect();
    for damaged in 0..good.len() {
        let mut bytes = good.clone();
        bytes[damaged] ^= 0x41;
        if let Some(format) = Format::guess(&bytes) {
            assert_eq!(format, Format::Vscsi, "byte {damaged}");
        }
        for cut in [48, 72, 96, damaged] {
            assert_ne!(Format::guess(&bytes[..cut]), Some(Format::OracleGeneral));
        }
    }
}

#[test]
fn a_few_records_are_a_trace_of_objects_only_if_they_are_whole() {
    let objects = include_bytes!("../../traces/samples/oracle-general.bin");
    assert_eq!(Format::guess(objects), Some(Format::OracleGeneral));
    for len in (25..objects.len()).filter(|len| len % 24 != 0) {
        assert_eq!(Format::guess(&objects[..len]), None, "{len} bytes");
    }
}

#[test]
fn an_event_before_the_first_is_put_before_it_and_said() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/traces/samples/blkparse-earlier.txt"
    ));
    let text = text.unwrap();
    let found = replay(text.as_bytes(), None, options()).unwrap();
    assert_eq!(
        found,
        [
            page(0, 0, 125, PageKind::Read, true),
            page(3_000_000, 1, 125, PageKind::Write, true),
            page(4_000_000, 2, 126, PageKind::Write, true),
            page(5_000_000, 0, 250, PageKind::Read, true),
        ]
    );
    let note = "1 request is earlier than one before, by up to 0.005 s: put in order";
    assert_eq!(told(text.as_bytes()).notes(), [note]);

    // As 64 bits, where a program prints them all.
    let whole = text.replace("1266874889.706551616", "18446744073.706551616");
    assert_eq!(replay(whole.as_bytes(), None, options()).unwrap(), found);

    // Also in binary.
    let at_ns = [0, 0u64.wrapping_sub(3_000_000), 1_000_000];
    let pages = replay(&events(&at_ns, 1), None, options()).unwrap();
    let times: Vec<u64> = pages.iter().map(|page| page.at_ns).collect();
    assert_eq!(times, [0, 3_000_000, 4_000_000]);
}

/// Events of one-page writes at these times, of the action with this number.
fn events(at_ns: &[u64], action: u32) -> Vec<u8> {
    let event = |(index, at_ns): (usize, &u64)| {
        let mut event = Vec::new();
        event.extend(0x6561_7407u32.to_le_bytes());
        event.extend((index as u32).to_le_bytes());
        event.extend(at_ns.to_le_bytes());
        event.extend((8 * index as u64).to_le_bytes());
        event.extend(4096u32.to_le_bytes());
        event.extend((action | 2 << 16).to_le_bytes());
        event.extend([0; 16]);
        event
    };
    at_ns.iter().enumerate().flat_map(event).collect()
}

#[test]
fn no_time_of_any_format_makes_a_trace_of_centuries() {
    let year_us = 31_557_600_000_000u64;
    let at = |us: u64| {
        let (s, ns) = (us / 1_000_000, us * 1000);
        [
            (Format::Msr, format!("{},h,0,Read,0,512,1", us * 10)),
            (Format::Alibaba, format!("3,W,0,4096,{us}")),
            (Format::Tencent, format!("{s},0,8,1,9")),
            (Format::Systor, format!("{s}.5,,R,0,0,512")),
            (Format::Spc, format!("0,0,512,W,{s}")),
            (Format::DiskSim, format!("{}.0 0 8 8 1", us / 1000)),
            (Format::Mqsim, format!("{ns} 0 9 8 0")),
            (Format::Fast21, format!("{ns} 0 8 0 77")),
            (
                Format::Blkparse,
                format!("8,0 3 2 {s}.1 697 Q W 22 + 8 [k]"),
            ),
            (Format::Session, format!("{ns} R 5 1")),
            (Format::CloudPhysics, format!("1,{us},2a,512,8")),
        ]
    };
    let zero = at(1_000_000);
    for ((format, first), (_, later)) in zero.iter().zip(at(40 * year_us)) {
        for (one, other, side) in [(first, &later, "after"), (&later, first, "before")] {
            let text = format!("{one}\n{other}\n");
            let said = refusal(text.as_bytes(), Some(*format));
            let reason = format!(":2: the time is absurd: 40.0 years {side} the first request");
            assert!(said.ends_with(&reason), "{format}: {said}");

            // Counted on request, without effect on the check of other times.
            let skipping = TraceOptions {
                skip_bad: true,
                ..options()
            };
            let reader = read_as(text.as_bytes(), Some(*format), skipping).unwrap();
            assert_eq!((reader.requests(), reader.skipped()), (1, 1));
        }
    }
    let fio = format!(
        "fio version 3 iolog\n1 /a read 0 512\n{} /a read 0 512\n",
        40 * year_us
    );
    assert!(refusal(fio.as_bytes(), None).contains(":3: the time is absurd"));
    let absurd = events(&[0, 40 * year_us * 1000], 1);
    assert!(refusal(&absurd, None).contains(":2: the time is absurd"));
}

#[test]
fn a_trace_repeated_for_centuries_stops_at_the_latest_time_there_is() {
    let text = b"0 R 5 1\n300000000000000000 R 6 1\n";
    let file = file_of(text);
    let decoded = Decoded::read(file.path(), None, options()).unwrap();
    let mut replay = decoded.replay(options(), 100);
    let mut pages = Vec::new();
    while replay.fill(&mut pages, 1000).unwrap() {}
    assert_eq!(pages.len(), 200);
    assert!(pages.is_sorted_by_key(|page| page.at_ns));
    assert_eq!(pages[199].at_ns, 1 << 62);
}

#[test]
fn the_first_action_that_a_recording_has_is_taken_and_said_unless_one_is_named() {
    let line = |sequence: u32, action: char| {
        format!(
            "8,16 0 {sequence} 0.{sequence:09} 1 {action} WS {} + 8 [x]\n",
            8 * sequence
        )
    };
    let text: String = (1..13).map(|sequence| line(sequence, 'D')).collect();
    let reader = told(text.as_bytes());
    assert_eq!(reader.requests(), 12);
    assert!(
        reader.notes()[0].starts_with("requests are the events with action D: it has none"),
        "{:?}",
        reader.notes()
    );
    assert!(told(BLKPARSE.as_bytes()).notes().is_empty());

    // Of issued and completed events, the issued ones are taken.
    let both = format!("{}{}{}", line(1, 'C'), line(2, 'D'), line(3, 'C'));
    assert_eq!(told(both.as_bytes()).requests(), 1);

    for (action, number) in [
        (Action::Queued, 1),
        (Action::Issued, 7),
        (Action::Completed, 8),
    ] {
        let binary = events(&[0, 1, 2], number);
        assert_eq!(told(&binary).requests(), 3, "{action}");
        for named in Action::ALL {
            let options = TraceOptions {
                action: Some(named),
                ..options()
            };
            let read = read_as(&binary, None, options);
            assert_eq!(read.is_ok(), named == action, "{named} of {action}");
        }
    }
}

#[test]
fn a_better_action_that_comes_late_stops_the_reading_whatever_is_skipped() {
    let issued = "8,16 0 1 0.000000001 1 D WS 8 + 8 [a process of a long name to fill the line]\n";
    let queued = "8,16 0 2 0.000000002 1 Q WS 8 + 8 [x]\n";
    let text = issued.repeat(1000) + queued + issued;
    let mut skipping = options();
    skipping.skip_bad = true;

    for options in [options(), skipping] {
        let error = read_as(text.as_bytes(), None, options).err().unwrap();
        let said = error.to_string();
        assert!(
            said.contains(":1001: the first event with action Q: events before it were taken with action D; say which with --blkparse-action Q or D"),
            "{said}"
        );
    }
    for (action, requests) in [(Action::Queued, 1), (Action::Issued, 1001)] {
        let named = TraceOptions {
            action: Some(action),
            ..options()
        };
        let reader = read_as(text.as_bytes(), None, named).unwrap();
        assert_eq!((reader.requests(), reader.notes().len()), (requests, 0));
    }

    let binary = [events(&[0; 2000], 7), events(&[5], 1)].concat();
    assert!(refusal(&binary, None).contains(":2001: the first event with action Q"));
}

#[test]
fn blkparse_lines_without_a_process_are_events_and_a_cut_one_is_none() {
    let text =
        "8,16 1 1 1.427376394 5529 Q WS 274432 + 8\n8,16 1 2 1.427384090 5529 G WS 274432 + 8\n";
    let reader = told(text.as_bytes());
    assert_eq!((reader.requests(), reader.ignored()), (1, 1));

    // The file ends within a line: its number of sectors may have been longer.
    let cut = format!("{text}8,16 1 3 1.5 5529 Q WS 274432 + 8");
    assert!(refusal(cut.as_bytes(), None).ends_with(":3: the file ends within the line"));

    // If lines have a process, one without it was cut.
    let mixed = format!("8,16 1 1 1.1 5529 Q WS 8 + 8 [x]\n{text}");
    assert!(refusal(mixed.as_bytes(), None).contains(":2: cut before the process"));
}

#[test]
fn what_manages_zones_reads_nothing_and_an_append_is_a_write_where_it_ended() {
    let kinds = |action: char, rwbs: &str| {
        let text = format!("8,16 0 1 0.1 1 {action} {rwbs} 8 + 8 [x]\n");
        let pages = replay(text.as_bytes(), Some(Format::Blkparse), options());
        pages.ok().map(|pages| pages[0].kind)
    };
    use PageKind::{Read, Trim, Write};
    for rwbs in ["ZR", "ZRA", "ZRAS", "ZO", "ZC", "ZF", "F", "FF", "N", "FN"] {
        assert_eq!(kinds('C', rwbs), None, "{rwbs}");
    }
    assert_eq!((kinds('Q', "ZAS"), kinds('D', "ZA")), (None, None));
    assert_eq!(kinds('C', "ZAS"), Some(Write));
    for (rwbs, kind) in [
        ("R", Read),
        ("RA", Read),
        ("RSM", Read),
        ("W", Write),
        ("WFS", Write),
        ("FWFS", Write),
        ("WZ", Write),
        ("D", Trim),
        ("DS", Trim),
        ("DE", Trim),
    ] {
        assert_eq!(kinds('Q', rwbs), Some(kind), "{rwbs}");
    }
}

#[test]
fn fio_logs_that_were_put_together_follow_one_another() {
    let text = b"fio version 3 iolog\n0 /a add\n1 /a open\n2 /a write 0 4096\n500000 /a write 4096 4096\n\
        600000 /a close\nfio version 2 iolog\n/b add\n/b open\n/b write 0 4096\n/b wait 7 0\n/b write 4096 4096\n";
    let pages = replay(text, None, options()).unwrap();
    let times: Vec<u64> = pages.iter().map(|page| page.at_ns / 1000).collect();
    assert_eq!(times, [0, 499_998, 499_998, 500_005]);

    let synced =
        b"fio version 3 iolog\n2 /a write 0 4096\n3 /a sync_file_range 0 0\n4 /a syncfs 0 0\n\
        5 /a sync 0 0\n6 /a datasync 0 0\n7 /a unlink\n";
    assert_eq!(told(synced).ignored(), 5);
    let flushes = TraceOptions {
        flushes: true,
        ..options()
    };
    assert_eq!(read_as(synced, None, flushes).unwrap().requests(), 4);
}

#[test]
fn a_line_of_fast21s_simulator_that_could_be_mqsims_is_told_by_the_lines_after_it() {
    let read_first = b"1000 64 8 1 0\n2000 64 8 0 77\n";
    let reader = told(read_first);
    assert_eq!((reader.format(), reader.requests()), (Format::Fast21, 2));
    // Such lines alone are MQSim's.
    assert_eq!(Format::guess(b"1000 64 8 1 0\n"), Some(Format::Mqsim));
    assert_eq!(
        Format::guess(b"1000 0 8 1 0\n2000 0 16 8 1\n"),
        Some(Format::Mqsim)
    );

    let sample = include_bytes!("../../traces/samples/fast21.txt");
    let contents: Vec<(u64, u64)> = replay(sample, None, options())
        .unwrap()
        .iter()
        .map(|page| (page.lpn.get(), page.content))
        .collect();
    // The last one starts within a page, so no page has the content of the fingerprint.
    assert_eq!(contents, [(0, 1), (8, 2), (8, 0), (9, 1), (3, 3), (4, 4)]);
}

/// Whatever a file contains, messages about it neither move a cursor nor end a line.
#[test]
fn messages_quote_what_a_file_says_without_its_control_characters() {
    let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/samples");
    let mut texts: Vec<Vec<u8>> = std::fs::read_dir(samples)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let md5 = "0a".repeat(16);
    texts.push(format!("1 1 p 0 8 W 6 0 {md5}\n").into_bytes());
    texts.push(b"1 0 9 8 0\n".to_vec());
    texts.push(
        b"0 R 5 1\n1 W 7 "
            .iter()
            .chain(md5.as_bytes())
            .copied()
            .collect(),
    );
    texts.push(BLKPARSE.as_bytes().to_vec());
    let columns: Format = "csv:op,time_ms,size_bytes,offset_sectors,device,digest"
        .parse()
        .unwrap();

    let mut refused = 0;
    for text in &texts {
        for at in 0..text.len().min(300) {
            let mut damaged = text.clone();
            damaged.splice(at..at + 1, *b"\x1b]0;title\x07\0\x7f\xc2\x9b");
            for format in Format::ALL.into_iter().chain([columns]) {
                // `of_bytes` takes static bytes.
                let bytes: &'static [u8] = damaged.clone().leak();
                let read = TraceReader::of_bytes("x", bytes, Some(format), options());
                if let Err(error) = read.and_then(|mut reader| drain(&mut reader)) {
                    let said = error.to_string();
                    assert!(!said.chars().any(char::is_control), "{format}: {said:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}
