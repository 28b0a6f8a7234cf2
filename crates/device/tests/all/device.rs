//! The device's commands with the real firmware: their timing, and the contents of a saved device.

use remap_ssd_device::{Device, DeviceConfig, HostLpn, Lpn, OpenError, PageCommand, PageKind};
use remap_ssd_ftl::{FilePage, Refusal, Remap, SchemeKind};
use remap_ssd_media::{Page, Payload};

fn small(scheme: SchemeKind) -> DeviceConfig {
    let mut config = DeviceConfig::preset("fast21-32g").unwrap();
    config.firmware.scheme = scheme;
    config.firmware.log_bytes = config
        .firmware
        .log_bytes
        .max(config.firmware.tables_bytes(&config.geometry));
    config.scale(1.0 / 64.0).unwrap()
}

fn device(scheme: SchemeKind) -> Device {
    Device::format(small(scheme)).unwrap()
}

fn write(device: &mut Device, now: u64, lpn: u32, content: u64) -> u64 {
    let completion = device.write(now, Lpn(lpn), &Payload::Identity(content));
    assert_eq!(completion.result, Ok(()));
    completion.done_at
}

/// Deterministic noise.
fn noise(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

const LINK_NS: u64 = 1000 + 1221;
const HASH_NS: u64 = 32_000;
const PROGRAM_NS: u64 = 500_000;

#[test]
fn a_remap_has_the_pages_that_it_maps_and_a_flush_has_none() {
    let remap = PageKind::Remap {
        source: Lpn(1).into(),
        len: 7,
        relocate: false,
        atomic: false,
    };
    let pages = [remap, PageKind::Flush, PageKind::Read, PageKind::Trim].map(PageKind::pages);
    assert_eq!(pages, [7, 0, 1, 1]);
}

// The first superblock's head (500 us) goes before the first data.
#[test]
fn a_write_takes_link_hash_and_program() {
    let mut device = device(SchemeKind::RemapSsd);
    let start = 10 * write(&mut device, 0, 0, 1);
    assert_eq!(
        write(&mut device, start, 1, 2) - start,
        LINK_NS + HASH_NS + PROGRAM_NS
    );
    let mut plain = self::device(SchemeKind::None);
    let start = 10 * write(&mut plain, 0, 0, 1);
    assert_eq!(
        write(&mut plain, start, 1, 2) - start,
        LINK_NS + PROGRAM_NS,
        "nothing is hashed without remapping"
    );
}

#[test]
fn a_duplicate_of_a_page_in_flight_is_done_after_that_page() {
    let mut device = device(SchemeKind::RemapSsd);
    let start = 10 * write(&mut device, 0, 0, 1);
    let first = write(&mut device, start, 1, 2);
    let second = write(&mut device, start, 2, 2);
    assert!(second > first && second < first + 1000, "{first} {second}");
    let later = write(&mut device, first + 1, 3, 2);
    assert!(later < first + LINK_NS + HASH_NS + 1000, "{first} {later}");
}

#[test]
fn a_remap_costs_a_command_and_an_entry() {
    let mut device = device(SchemeKind::RemapSsd);
    let now = 10 * write(&mut device, 0, 0, 1);
    let remap = Remap {
        target: Lpn(9),
        source: Lpn(0),
        len: 1,
        relocate: false,
        atomic: false,
    };

    let first = device.remap(now, &remap);
    assert_eq!(first.result, Ok(()));
    let now = first.done_at + 1_000_000;
    let second = device.remap(
        now,
        &Remap {
            target: Lpn(10),
            ..remap
        },
    );

    assert!(
        (1100..1200).contains(&(second.done_at - now)),
        "{}",
        second.done_at - now
    );
    assert_eq!(device.read(now, Lpn(10)).1, Ok(Page::Identity(1)));
}

/// A device that does not deduplicate and whose firmware takes time, and a time at which it is idle.
fn with_firmware(cores: u32) -> (Device, u64) {
    let mut config = small(SchemeKind::None);
    config.controller.firmware_ns = 30_000;
    config.controller.page_ns = 1_000;
    config.controller.cores = cores;
    let mut device = Device::format(config).unwrap();
    let start = 10 * write(&mut device, 0, 0, 1);
    (device, start)
}

#[test]
fn a_core_executes_one_command_after_the_other() {
    let (mut device, start) = with_firmware(1);
    let ends = [1, 2, 3].map(|lpn| write(&mut device, start, lpn, 9) - start);
    let first = LINK_NS + 31_000 + PROGRAM_NS;
    // The core takes its turns as commands arrive; the first page's way over the link delays only itself.
    let expected = [
        first,
        1000 + 62_000 + PROGRAM_NS,
        1000 + 93_000 + PROGRAM_NS,
    ];
    assert_eq!(ends, expected);

    let (mut device, start) = with_firmware(2);
    let ends = [1, 2, 3].map(|lpn| write(&mut device, start, lpn, 9) - start);
    assert!(
        ends[1] < first + 2000 && ends[2] > first + 25_000,
        "{ends:?}"
    );
}

#[test]
fn a_request_of_several_pages_is_one_command_of_the_firmware() {
    let (mut device, start) = with_firmware(1);
    let write = |lpn| PageCommand {
        content: 1,
        lpn: Lpn(lpn).into(),
        kind: PageKind::Write,
    };
    let whole = device.submit_request(start, &[1, 2, 3, 4].map(write));
    // 31 us for the first page and 1 us for each other.
    assert_eq!(whole.done_at - start, 1000 + 34_000 + PROGRAM_NS);

    // On one core, though another is idle.
    let (mut two, start) = with_firmware(2);
    let whole = two.submit_request(start, &[1, 2, 3, 4].map(write));
    assert_eq!(whole.done_at - start, 1000 + 34_000 + PROGRAM_NS);

    // Page by page, and ended by the firmware: the next command is one again.
    let start = 10 * whole.done_at;
    two.write_more(start, Lpn(5), &Payload::Identity(5));
    let ended = two.end_write(start).done_at;
    let start = 10 * ended.max(start);
    let next = self::write(&mut two, start, 6, 6);
    assert_eq!(next - start, LINK_NS + 31_000 + PROGRAM_NS);

    // A page still on its way over the link delays no other command of the core.
    let start = 10 * next;
    let pages: Vec<PageCommand> = (10..40).map(write).collect();
    let (mut one, _) = with_firmware(1);
    self::write(&mut one, start, 1, 9);
    let start = 2 * start;
    one.submit_request(start, &pages);
    let (read, _) = one.read(start, Lpn(1));
    let core = 1000 + 30_000 + 30 * 1000 + 31_000;
    assert!(read - start < core + 560_000, "{}", read - start);

    // A remap transfers nothing, and is charged for its pages.
    let remap = Remap {
        target: Lpn(9),
        source: Lpn(1),
        len: 4,
        relocate: false,
        atomic: false,
    };
    let (mut plain, start) = (self::device(SchemeKind::Opt), 10 * whole.done_at);
    let mut config = small(SchemeKind::Opt);
    config.controller.firmware_ns = 30_000;
    config.controller.page_ns = 1_000;
    let mut slow = Device::format(config).unwrap();
    let duration = |device: &mut Device| {
        for lpn in 1..5 {
            self::write(device, 0, lpn, 9);
        }
        device.remap(start, &remap).done_at - start
    };
    assert_eq!(duration(&mut slow) - duration(&mut plain), 34_000);
}

#[test]
fn a_flush_takes_its_time_once_everything_before_it_has_ended() {
    let mut config = small(SchemeKind::RemapSsd);
    config.flash.flush_ns = 200_000;
    let mut slow = Device::format(config).unwrap();
    let mut plain = device(SchemeKind::RemapSsd);
    let ends = [&mut slow, &mut plain].map(|device| {
        write(device, 0, 0, 1);
        device.flush(5000).done_at
    });
    assert_eq!(ends[0] - ends[1], 200_000);

    // A device file of an earlier version says nothing of these times.
    let mut older = small(SchemeKind::RemapSsd).to_toml();
    for key in ["host_ns", "flush_ns"] {
        older = older.replace(&format!("{key} = 0\n"), "");
    }
    let table = "[controller]\nfirmware_ns = 0\npage_ns = 0\ncores = 1\n";
    assert!(older.contains(table));
    let older = DeviceConfig::from_toml(&older.replace(table, "")).unwrap();
    assert_eq!(older, small(SchemeKind::RemapSsd));
}

#[test]
fn a_refused_command_is_done_at_once() {
    let mut device = device(SchemeKind::None);
    let outside = PageCommand {
        content: 1,
        lpn: Lpn(device.config().firmware.lpns).into(),
        kind: PageKind::Write,
    };

    let completion = device.submit(5000, &outside);
    assert_eq!(completion.result, Err(Refusal::OutOfRange));
    assert!(completion.done_at < 10_000);

    let whole = device.submit_request(
        5000,
        &[
            PageCommand {
                lpn: Lpn(0).into(),
                ..outside
            },
            outside,
        ],
    );

    assert_eq!(whole.result, Err(Refusal::OutOfRange));
    assert!(
        whole.done_at >= PROGRAM_NS,
        "the page that was not refused counts as well"
    );
}

#[test]
fn idle_time_is_used_only_after_a_while_and_only_if_there_is_garbage() {
    let mut device = device(SchemeKind::None);
    device.idle(0, 1_000_000_000);
    assert_eq!(
        device.timing().busy_until(),
        0,
        "a new device has nothing to collect"
    );

    let (mut state, mut content) = (1, 1);
    let lpns = device.config().addressable_lpns();
    while device.ftl().free_superblocks() > device.ftl().gc_start() {
        let lpn = (noise(&mut state) % lpns) as u32;
        content += 1;
        device
            .untimed(|ftl| ftl.write(Lpn(lpn), &Payload::Identity(content)))
            .unwrap();
    }

    let wait = device.config().background.idle_after_ns;
    device.idle(0, wait);
    assert_eq!(device.timing().busy_until(), 0);

    let free = device.ftl().free_superblocks();
    device.idle(wait, 600_000_000_000);
    assert!(device.ftl().free_superblocks() > free);
    assert!(device.timing().busy_until() > wait);
}

/// Victims without valid pages: only the erases take time.
#[test]
fn one_pause_is_enough_for_victims_that_are_all_garbage() {
    for engine in ["published", "nand"] {
        let config = DeviceConfig::preset("fast21-32g").unwrap();
        let engine = format!("timing.engine={engine}").parse().unwrap();
        let no_stalls = "background.lookup_stalls_dies=false".parse().unwrap();
        let config = config.with(&[no_stalls, engine]).unwrap();
        let mut device = Device::format(config.scale(1.0 / 8.0).unwrap()).unwrap();
        let lpns = device.config().addressable_units();
        let (mut lpn, mut content) = (0, 0);
        while device.ftl().free_superblocks() > device.ftl().gc_start() {
            lpn = (lpn + 1) % lpns;
            content += 1;
            device
                .untimed(|ftl| ftl.write(Lpn(lpn), &Payload::Identity(content)))
                .unwrap();
        }
        assert!(device.ftl().collection_steps() > 1);

        device.idle(0, 600_000_000_000);
        assert!(device.ftl().free_superblocks() > device.ftl().gc_start());
        assert_eq!(device.ftl().stats().gc_programs, 0);
        let is_left = device.untimed(|ftl| ftl.background());
        assert!(!is_left, "{:?}", device.config().timing.engine);
    }
}

/// These settings are not stored on the media, yet they must hold until they are changed.
#[test]
fn what_was_set_for_a_device_stays_set_through_a_power_cut() {
    let mut device = device(SchemeKind::RemapSsd);
    let ranges = [Lpn(10)..Lpn(20), Lpn(30)..Lpn(31)];
    ranges
        .iter()
        .for_each(|lpns| device.keep_apart(lpns.clone()));
    device.pause_dedup(true);
    let (device, _) = device.power_cycle().expect("it recovers");
    assert_eq!(device.ftl().apart(), ranges);
    assert!(device.ftl().is_dedup_paused());

    // Pages are not looked up by content, so nothing is hashed.
    let mut device = device;
    let start = 10 * write(&mut device, 0, 0, 1);
    let second = write(&mut device, start, 1, 1) - start;
    assert_eq!(second, LINK_NS + PROGRAM_NS, "paused");
    device.pause_dedup(false);
    let start = 10 * start;
    let third = write(&mut device, start, 2, 3) - start;
    assert_eq!(third, LINK_NS + HASH_NS + PROGRAM_NS);

    // A device with timing switched off has none afterwards.
    assert!(device.halves().is_some());
    device.keep_time(false);
    let (mut device, _) = device.power_cycle().expect("it recovers");
    assert!(device.halves().is_none());
    write(&mut device, 0, 3, 4);
    assert_eq!(device.timing().busy_until(), 0);
}

/// The firmware does background work when the device has been idle for the configured time.
#[test]
fn idle_time_begins_when_the_last_command_has_ended() {
    let mut device = device(SchemeKind::None);
    let (mut state, mut content) = (1, 1);
    let lpns = device.config().addressable_lpns();
    while device.ftl().free_superblocks() > device.ftl().gc_start() {
        let lpn = (noise(&mut state) % lpns) as u32;
        content += 1;
        device
            .untimed(|ftl| ftl.write(Lpn(lpn), &Payload::Identity(content)))
            .unwrap();
    }

    // All of it arrives at once, and keeps the device busy for longer than the idle time.
    let wait = device.config().background.idle_after_ns;
    for lpn in 0.. {
        write(&mut device, 0, lpn, content + u64::from(lpn) + 1);
        if device.timing().busy_until() > wait {
            break;
        }
    }

    let busy = device.timing().busy_until();
    device.idle(0, busy + wait);
    assert_eq!(
        device.timing().busy_until(),
        busy,
        "it was not idle so long"
    );
    device.idle(0, busy + wait + 1);
    assert!(device.timing().busy_until() > busy + wait);
}

#[test]
fn completion_times_are_the_same_every_time() {
    for scheme in SchemeKind::ALL {
        let times = || {
            let (mut device, mut state, mut now) = (device(scheme), 1, 0);
            let lpns = device.config().addressable_lpns();
            let ends: Vec<u64> = (0..300_000)
                .map(|_| {
                    let kind = match noise(&mut state) % 10 {
                        0 => PageKind::Read,
                        1 => PageKind::ReadModifyWrite,
                        2 => PageKind::Trim,
                        _ => PageKind::Write,
                    };
                    let command = PageCommand {
                        content: noise(&mut state) % 400_000 + 1,
                        lpn: HostLpn::new(noise(&mut state) % lpns),
                        kind,
                    };
                    now += 40_000;
                    let completion = device.submit(now, &command);
                    assert_eq!(completion.result, Ok(()), "{scheme}");
                    assert!(completion.done_at > now);
                    completion.done_at
                })
                .collect();
            assert!(device.ftl().stats().gc_runs > 0, "{scheme}");
            ends
        };
        assert!(times() == times(), "{scheme}");
    }
}

#[test]
fn a_saved_device_reads_the_same_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in SchemeKind::ALL {
        let (mut device, path) = (device(scheme), folder.path().join(scheme.name()));
        let lpns = device.config().addressable_units();
        for n in 0..5000 {
            write(&mut device, 0, n * 7 % lpns, u64::from(n % 900) + 1);
        }

        device.deallocate(0, Lpn(100), 50).result.unwrap();
        let saved = device.save(&path);
        if !scheme.is_durable() {
            assert!(matches!(saved, Err(OpenError::NotDurable(name)) if name == scheme.name()));
            continue;
        }

        saved.unwrap();
        let (mut again, _) = Device::load(&path).unwrap();
        assert_eq!(again.config(), device.config());

        for lpn in 0..40_000.min(lpns) {
            assert_eq!(
                again.read(0, Lpn(lpn)).1,
                device.read(0, Lpn(lpn)).1,
                "{scheme} {lpn}"
            );
        }
        write(&mut again, 0, 3, 12_345);
    }
    assert!(Device::load(&folder.path().join("nothing")).is_err());
}

/// Operations before the device existed do not delay its first command.
#[test]
fn neither_formatting_nor_recovery_nor_what_is_untimed_delays_a_command() {
    let mut device = device(SchemeKind::RemapSsd);
    for _ in 0..2 {
        assert_eq!(device.read(0, Lpn(70)).1, Ok(Page::Zeroes));
        assert_eq!(device.timing().busy_until(), 0, "nothing on flash was read");
        device
            .untimed(|ftl| ftl.write(Lpn(1), &Payload::Identity(2)))
            .unwrap();
        assert_eq!(device.read(0, Lpn(70)).1, Ok(Page::Zeroes));
        assert_eq!(device.timing().busy_until(), 0);
        device = device.power_cycle().expect("it recovers").0;
    }
}

#[test]
fn a_request_reports_its_first_refusal_and_ends_with_its_last_page() {
    let mut device = device(SchemeKind::RemapSsdX);
    let page = |lpn, content| PageCommand {
        content,
        lpn: Lpn(lpn).into(),
        kind: PageKind::Write,
    };
    let outside = page(device.config().firmware.lpns, 1);
    let whole = device.submit_request(0, &[outside, page(0, 1)]);
    assert_eq!(whole.result, Err(Refusal::OutOfRange));

    // Remaps batched by the scheme are durable when the request is done.
    let pages: Vec<_> = (10..14).map(|lpn| page(lpn, 1)).collect();
    assert_eq!(device.submit_request(whole.done_at, &pages).result, Ok(()));
    assert_eq!(device.ftl().stats().dedup_hits, 4);
    let (mut device, _) = device.power_cycle().expect("it recovers");
    assert!((10..14).all(|lpn| device.read(0, Lpn(lpn)).1 == Ok(Page::Identity(1))));
}

#[test]
fn a_remap_reports_what_became_of_its_own_pages() {
    let mut device = device(SchemeKind::RemapSsd);
    let mut now = write(&mut device, 0, 0, 1);
    device.keep_apart(Lpn(500)..Lpn(600));
    let most = u32::from(device.config().firmware.count_max);
    let mut remap = |target| {
        let done = device.remap(
            now,
            &Remap {
                target: Lpn(target),
                source: Lpn(0),
                len: 1,
                relocate: false,
                atomic: false,
            },
        );
        assert_eq!(done.result, Ok(()));
        now = done.done_at;
        let copied = done.copied;
        [
            done.remapped,
            copied.counter_full,
            copied.metadata_full,
            copied.otherwise,
        ]
    };

    for target in 1..most {
        assert_eq!(remap(target), [1, 0, 0, 0]);
    }
    for target in most..most + 2 {
        assert_eq!(remap(target), [0, 1, 0, 0], "the counter is full");
    }
    for target in 500..502 {
        assert_eq!(remap(target), [0, 0, 0, 1], "it is kept apart");
    }
}

#[test]
fn media_of_another_shape_are_refused() {
    let device = device(SchemeKind::None);
    let mut config = device.config().clone();
    let shape = config.geometry;
    config.geometry = remap_ssd_media::Geometry::new(remap_ssd_media::geometry::Shape {
        channels: 1,
        dies: shape.dies_total(),
        superblocks: shape.superblocks(),
        pages_per_block: shape.pages_per_block(),
    })
    .expect("valid");
    assert_eq!(config.geometry.pages(), shape.pages());
    let error = Device::recover(device.into_media(), config).err();
    let error = error.expect("every page has another address").to_string();
    assert!(error.contains("another geometry"), "{error}");
}

/// A partial page takes as long as a whole one.
#[test]
fn a_map_of_a_file_takes_the_link_for_its_pages() {
    let mut config = small(SchemeKind::RemapSsd);
    (config.firmware.fs_files, config.firmware.fs_blocks) = (16, 2000);
    let mut device = Device::format(config).expect("possible");
    let mut took = |blocks: u32| {
        for offset in 0..blocks {
            let page = FilePage { inode: 5, offset };
            let done = device.fs_write(0, Lpn(offset), &Payload::Identity(1), page);
            done.result.expect("possible");
        }
        let start = 10 * device.timing().busy_until();
        let (done, map) = device.fs_map(start, 5);
        assert_eq!(map.map(|map| map.len()), Ok(blocks as usize));
        device.fs_reset(start).result.expect("possible");
        done - start
    };

    // One page of the link, and one entry in NVRAM.
    let none = took(0);
    assert!((1221..1321).contains(&(took(1) - none)));
}
