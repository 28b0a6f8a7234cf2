//! Indirection units larger than a page: contents against an array of pages, numbers of operations, times, and
//! what is refused.

use super::kit::numbers::Numbers;
use remap_ssd_device::{
    Device, DeviceConfig, HostLpn, IndirectionCounts, Lpn, PageCommand, PageKind, Refusal, Remap,
    SchemeKind,
};
use remap_ssd_media::{ContentMode, Page, WordLine};
use std::collections::HashMap;

/// A small device with units of `unit` pages. `more` is added to the file.
fn config(unit: u32, scheme: SchemeKind, more: &str) -> Result<DeviceConfig, String> {
    let bytes = unit * 4096;
    let text = format!(
        "preset = \"fast21-32g\"\nscale = \"1/64\"\naddressable = 1.0\n{more}\n\
         [geometry]\nchannels = 4\ndies = 4\nsuperblocks = 64\npages_per_block = 4096\npage_bytes = {bytes}\nindirection_bytes = {bytes}\n\
         [firmware]\nscheme = \"{scheme}\"\nlpns = 786432\nlog_bytes = 16777216"
    );
    DeviceConfig::from_toml(&text).map_err(|error| error.to_string())
}

fn device(unit: u32, scheme: SchemeKind) -> Device {
    Device::format(config(unit, scheme, "").expect("a valid file")).expect("a valid device")
}

/// What pages hold, and whether the identities of units may be compared by contents.
struct Pages {
    unit: usize,
    contents: Vec<u64>,
    /// True for units whose pages are all known: written whole, or over zeroes.
    is_exact: Vec<bool>,
}

impl Pages {
    fn new(unit: usize, units: usize) -> Self {
        Self {
            unit,
            contents: vec![0; units * unit],
            is_exact: vec![true; units],
        }
    }

    fn write(&mut self, first: usize, contents: &[u64]) {
        for unit in first / self.unit..=(first + contents.len() - 1) / self.unit {
            let (begin, end) = (unit * self.unit, (unit + 1) * self.unit);
            let is_whole = first <= begin && end <= first + contents.len();
            let was_zero = self.contents[begin..end].iter().all(|page| *page == 0);
            self.is_exact[unit] = is_whole || was_zero && self.is_exact[unit];
        }
        self.contents[first..first + contents.len()].copy_from_slice(contents);
    }

    fn trim(&mut self, first: usize, len: usize) {
        for unit in 0..self.is_exact.len() {
            let (begin, end) = (unit * self.unit, (unit + 1) * self.unit);
            if first <= begin && end <= first + len {
                self.contents[begin..end].fill(0);
                self.is_exact[unit] = true;
            }
        }
    }

    fn remap(&mut self, target: usize, source: usize, len: usize, relocate: bool) {
        if target == source || len == 0 {
            return;
        }
        let unit = self.unit;
        let keeps_places = target % unit == source % unit;
        let moved = self.contents[source..source + len].to_vec();
        let exact: Vec<bool> = (0..len)
            .map(|at| self.is_exact[(source + at) / unit])
            .collect();
        self.contents[target..target + len].copy_from_slice(&moved);
        for at in target / unit..=(target + len - 1) / unit {
            let (begin, end) = (at * unit, (at + 1) * unit);
            let is_whole = target <= begin && end <= target + len;
            self.is_exact[at] = keeps_places && is_whole && exact[(begin.max(target)) - target];
        }
        if !relocate {
            return;
        }
        let is_target = |page: usize| (target..target + len).contains(&page);
        for page in (source..source + len).filter(|page| !is_target(*page)) {
            self.contents[page] = 0;
            self.is_exact[page / unit] = false;
        }
    }
}

/// Units with the same identity have the same pages; and if all pages are known, the converse.
#[derive(Default)]
struct Identities {
    pages: HashMap<u64, Vec<u64>>,
    of_exact: HashMap<Vec<u64>, u64>,
}

impl Identities {
    fn check(&mut self, device: &mut Device, pages: &Pages, at: usize) {
        for unit in 0..pages.is_exact.len() {
            let held = &pages.contents[unit * pages.unit..(unit + 1) * pages.unit];
            let is_zero = held.iter().all(|page| *page == 0);
            let read = device.untimed(|ftl| ftl.read(Lpn(unit as u32)));
            match read.expect("flash without errors") {
                Page::Zeroes => assert!(is_zero, "step {at}: unit {unit} has {held:?}"),
                Page::Identity(identity) => {
                    let known = self.pages.entry(identity).or_insert_with(|| held.to_vec());
                    assert_eq!(known, held, "step {at}: unit {unit}, identity {identity:x}");
                    if pages.is_exact[unit] && !is_zero {
                        let exact = *self.of_exact.entry(held.to_vec()).or_insert(identity);
                        assert_eq!(exact, identity, "step {at}: unit {unit} has {held:?}");
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Random writes, reads, deallocations and remaps of any place and length.
#[test]
fn units_hold_what_an_array_of_pages_holds() {
    for unit in [2, 4, 16] {
        for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::Opt] {
            let mut device = device(unit, scheme);
            let mut random = Numbers(u64::from(unit) + 1);
            let units = 24;
            let mut pages = Pages::new(unit as usize, units);
            let mut identities = Identities::default();
            let all = pages.contents.len() as u64;
            let (mut written, mut now) = (0, 0);

            for at in 0..700 {
                let len = 1 + random.below(u64::from(3 * unit));
                let first = random.below(all - len + 1);
                let lpn = |page: u64| Lpn(page as u32);
                let done_at = match random.below(8) {
                    0..4 => {
                        // Few contents, so that units are equal now and then.
                        let base = random.below(3);
                        let contents: Vec<u64> =
                            (0..len).map(|page| 1 + base * (page % 2)).collect();
                        let commands: Vec<_> = (first..first + len)
                            .zip(&contents)
                            .map(|(page, content)| PageCommand {
                                content: *content,
                                lpn: HostLpn::new(page),
                                kind: PageKind::Write,
                            })
                            .collect();
                        let done = device.submit_request(now, &commands);
                        assert_eq!(done.result, Ok(()));
                        pages.write(first as usize, &contents);
                        written += len;
                        done.done_at
                    }
                    4 => {
                        pages.trim(first as usize, len as usize);
                        let done = device.deallocate(now, lpn(first), len as u32);
                        assert_eq!(done.result, Ok(()));
                        done.done_at
                    }
                    5 => device.read(now, lpn(first)).0,
                    kind => {
                        let relocate = kind == 7;
                        // Half of them at the same places of their units.
                        let mut source = random.below(all - len + 1);
                        if random.below(2) == 0 {
                            source = source / u64::from(unit) * u64::from(unit)
                                + first % u64::from(unit);
                            source = source
                                .min(first.max(all - len - (all - len - first) % u64::from(unit)));
                        }
                        let done = device.remap(
                            now,
                            &Remap {
                                target: lpn(first),
                                source: lpn(source),
                                len: len as u32,
                                relocate,
                                atomic: false,
                            },
                        );
                        assert_eq!(done.result, Ok(()), "{source} to {first}, {len} pages");
                        pages.remap(first as usize, source as usize, len as usize, relocate);
                        written += len;
                        done.done_at
                    }
                };
                assert!(done_at >= now);
                now = done_at;
                identities.check(&mut device, &pages, at);
            }
            assert_eq!(device.ftl().check(), Ok(()));
            assert_eq!(device.stats().host_writes, written);
            let counts = device.indirection_counts();
            assert!(
                counts.whole_writes > 50 && counts.read_modify_writes > 50,
                "{counts:?}"
            );
            assert!(
                counts.demoted_unaligned > 0 && counts.demoted_partial > 0,
                "{counts:?}"
            );
            let shared = device.stats();
            assert!(scheme == SchemeKind::None || shared.remaps > shared.dedup_hits);
        }
    }
}

/// The flash reads and programs of a command.
fn operations<R>(device: &mut Device, command: impl FnOnce(&mut Device) -> R) -> (u64, u64) {
    let counts = |device: &Device| {
        let counts = device.ftl().media().counts;
        (counts.reads, counts.programs)
    };
    let before = counts(device);
    command(device);
    let after = counts(device);
    (after.0 - before.0, after.1 - before.1)
}

fn request(kind: PageKind, first: u32, len: u32) -> Vec<PageCommand> {
    let command = |lpn: HostLpn| PageCommand {
        content: 1_000_000 + u64::from(lpn),
        lpn,
        kind,
    };
    HostLpn::range(Lpn(first).into(), len)
        .map(command)
        .collect()
}

#[test]
fn a_request_reads_and_programs_each_unit_once() {
    let mut device = device(4, SchemeKind::RemapSsd);
    device.pause_dedup(true);
    device.submit_request(0, &request(PageKind::Write, 0, 400));
    let mut of = |kind, first, len| {
        operations(&mut device, |device| {
            device.submit_request(0, &request(kind, first, len))
        })
    };

    // Reads and programs of units.
    assert_eq!(of(PageKind::Write, 17, 1), (1, 1));
    assert_eq!(of(PageKind::Write, 20, 4), (0, 1));
    assert_eq!(of(PageKind::Write, 25, 2), (1, 1));
    assert_eq!(of(PageKind::Write, 30, 7), (2, 3));
    assert_eq!(of(PageKind::Read, 41, 1), (1, 0));
    assert_eq!(of(PageKind::Read, 40, 4), (1, 0));
    assert_eq!(of(PageKind::Read, 43, 2), (2, 0));
    // A page written in part: its unit is read even if all its other pages are written whole.
    assert_eq!(of(PageKind::ReadModifyWrite, 44, 4), (1, 1));
    // Over zeroes nothing is read from flash.
    assert_eq!(of(PageKind::Write, 501, 2), (0, 1));
    let counts = device.indirection_counts();
    assert_eq!((counts.whole_writes, counts.read_modify_writes), (102, 6));
    assert_eq!(counts.unmoved_pages, 3 + 3 + 3);

    let remap = |target, source, len| Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    };
    let mut of = |remap: Remap| operations(&mut device, |device| device.remap(0, &remap));
    assert_eq!(of(remap(600, 80, 8)), (0, 0));
    // One page to another place: source and target are read. To an unmapped unit: the source alone.
    assert_eq!(of(remap(100, 81, 1)), (2, 1));
    assert_eq!(of(remap(700, 81, 1)), (1, 1));
    // Two ends at the same places; a whole unit out of two.
    assert_eq!(of(remap(122, 82, 8)), (4, 2));
    assert_eq!(of(remap(140, 82, 4)), (2, 1));
    let counts = device.indirection_counts();
    assert_eq!(
        (counts.demoted_unaligned, counts.demoted_partial),
        (1 + 1 + 4, 4)
    );

    let done = device.remap(0, &remap(162, 86, 8));
    assert_eq!((done.remapped, done.copied.total()), (4, 4));
    assert_eq!(
        operations(&mut device, |device| device.deallocate(0, Lpn(201), 10)).1,
        0
    );
    assert_eq!(device.indirection_counts().kept_pages, 3 + 3);
    assert_eq!(device.stats().host_deallocations, 4);
}

/// 50 us a read, 500 us a program, 10 us and 4 us for moving 4 KiB; 1 us a command. Flash pages of `page_bytes`.
fn times(page_bytes: u32, more: &str) -> Device {
    let more = format!(
        "[flash]\ntransfer_ns = 10_000\n[link]\nmib_s = 1000\ncommand_ns = 1000\n\
         [background]\nlookup_stalls_dies = false\n{more}"
    );
    let mut config = config(4, SchemeKind::None, "").expect("a valid file");
    let given = DeviceConfig::from_toml(&format!("preset = \"fast21-32g\"\n{more}"));
    let given = given.expect("a valid file");
    let word_line = WordLine {
        page_bytes,
        ..config.geometry.word_line()
    };
    config.geometry = config.geometry.with_word_line(word_line).expect("valid");
    (config.flash, config.link, config.timing) = (given.flash, given.link, given.timing);
    config.background = given.background;
    config.firmware.dedup = false;
    Device::format(config).expect("a valid device")
}

#[test]
fn transfers_take_as_long_as_what_is_moved() {
    for engine in ["published", "nand"] {
        let mut device = times(16_384, &format!("[timing]\nengine = \"{engine}\""));
        let mut now = device
            .submit_request(0, &request(PageKind::Write, 0, 64))
            .done_at;
        let mut of = |commands: &[PageCommand]| {
            now = now.max(device.busy_until()) + 1_000_000;
            device.submit_request(now, commands).done_at - now
        };

        // Link: 3,907 ns a page. A whole unit crosses link and channel, and is programmed.
        let link = 3_907;
        let whole = 4 * link + 1_000 + 40_000 + 500_000;
        assert_eq!(of(&request(PageKind::Write, 8, 4)), whole, "{engine}");
        // One page crosses the link; the unit is read and moved to the controller and back.
        let part = link + 1_000 + 50_000 + 40_000 + 40_000 + 500_000;
        assert_eq!(of(&request(PageKind::Write, 13, 1)), part, "{engine}");
        // Of a unit that is read, what the host needs is moved.
        for pages in [1, 3, 4] {
            let read = 1_000 + 50_000 + u64::from(pages) * (10_000 + link);
            assert_eq!(of(&request(PageKind::Read, 20, pages)), read, "{engine}");
        }
    }
}

#[test]
fn units_of_a_larger_flash_page_are_moved_alone() {
    let mut device = times(65_536, "[timing]\nengine = \"nand\"\npart_saves_ns = 5000");
    let mut now = device
        .submit_request(0, &request(PageKind::Write, 0, 512))
        .done_at;
    let mut of = |commands: &[PageCommand]| {
        now = now.max(device.busy_until()) + 10_000_000;
        device.submit_request(now, commands).done_at - now
    };

    // The array is faster for 4 KiB alone, and not for the whole unit.
    let link = 3_907;
    let read = |saves: u64, pages: u64| 51_000 - saves + pages * (10_000 + link);
    assert_eq!(of(&request(PageKind::Read, 8, 1)), read(5_000, 1));
    assert_eq!(of(&request(PageKind::Read, 8, 4)), read(0, 4));
    // A write is done once its unit is in the controller's buffer.
    assert_eq!(of(&request(PageKind::Write, 8, 4)), 1_000 + 4 * link);
    let merged = link + 1_000 + 50_000 + 40_000;
    assert_eq!(of(&request(PageKind::Write, 13, 1)), merged);
}

#[test]
fn an_atomic_remap_has_whole_units() {
    let more = "[firmware]\nentry = \"24\"";
    let mut config = config(4, SchemeKind::RemapSsd, "").expect("a valid file");
    let given = DeviceConfig::from_toml(&format!("preset = \"fast21-32g\"\n{more}"));
    config.firmware.entry = given.expect("a valid file").firmware.entry;
    let mut device = Device::format(config).expect("a valid device");
    device.submit_request(0, &request(PageKind::Write, 0, 64));
    let mut remap = |target, source, len| {
        let (target, source) = (Lpn(target), Lpn(source));
        let remap = Remap {
            target,
            source,
            len,
            relocate: false,
            atomic: true,
        };
        device.remap(0, &remap).result
    };
    assert_eq!(remap(100, 20, 8), Ok(()));
    assert_eq!(remap(100, 21, 8), Err(Refusal::AtomicPartial));
    assert_eq!(remap(101, 21, 7), Err(Refusal::AtomicPartial));
    assert_eq!(device.stats().host_writes, 64 + 8);
}

#[test]
fn commands_end_with_the_last_page() {
    let mut device = device(4, SchemeKind::RemapSsd);
    let pages = device.config().logical_pages() as u32;
    let write = |lpn| PageCommand {
        content: 1,
        lpn: Lpn(lpn).into(),
        kind: PageKind::Write,
    };
    assert_eq!(device.submit(0, &write(pages - 1)).result, Ok(()));
    assert_eq!(
        device.submit(0, &write(pages)).result,
        Err(Refusal::OutOfRange)
    );
    assert_eq!(device.read(0, Lpn(pages)).1, Err(Refusal::OutOfRange));
    let done = device.deallocate(0, Lpn(pages - 1), 2);
    assert_eq!(done.result, Err(Refusal::OutOfRange));
    let beyond = device.remap(
        0,
        &Remap {
            target: Lpn(0),
            source: Lpn(pages - 3),
            len: 4,
            relocate: false,
            atomic: false,
        },
    );
    assert_eq!(beyond.result, Err(Refusal::OutOfRange));
}

/// Whose low bits are those of a page that is written.
#[test]
fn pages_far_beyond_the_device_are_refused_and_no_other_pages() {
    for unit in [1, 4, 16] {
        let mut device = device(unit, SchemeKind::RemapSsd);
        let near = request(PageKind::Write, 0, 64);
        assert_eq!(device.submit_request(0, &near).result, Ok(()));
        let before: Vec<_> = (0..64).map(|lpn| device.read(0, Lpn(lpn)).1).collect();

        for far in [1 << 32, 1 << 34, 1 << 35, 1 << 36, 1 << 39] {
            let first = HostLpn::new(far);
            let kinds = [
                PageKind::Write,
                PageKind::Read,
                PageKind::ReadModifyWrite,
                PageKind::Trim,
                PageKind::WriteFor { home: first },
                PageKind::Remap {
                    source: HostLpn::new(16),
                    len: 16,
                    relocate: true,
                    atomic: false,
                },
            ];
            for kind in kinds {
                let command = PageCommand {
                    content: 9,
                    lpn: first,
                    kind,
                };
                let done = device.submit(0, &command).result;
                assert_eq!(done, Err(Refusal::OutOfRange), "{kind:?} of {first}");
            }
            let to_near = PageCommand {
                content: 9,
                lpn: HostLpn::new(16),
                kind: PageKind::Remap {
                    source: first,
                    len: 16,
                    relocate: true,
                    atomic: false,
                },
            };
            assert_eq!(
                device.submit(0, &to_near).result,
                Err(Refusal::OutOfRange),
                "remap from {first}"
            );
            let done = device.submit_deallocation(0, first, 32).result;
            assert_eq!(done, Err(Refusal::OutOfRange), "deallocation of {first}");
        }
        let after: Vec<_> = (0..64).map(|lpn| device.read(0, Lpn(lpn)).1).collect();
        assert!(after == before, "units of {unit} pages");
    }
}

#[test]
fn a_unit_of_one_page_is_a_page() {
    let device = device(1, SchemeKind::RemapSsd);
    assert_eq!(device.indirection_counts(), IndirectionCounts::default());
    assert_eq!(device.stats(), device.ftl().stats());
    assert_eq!(
        u64::from(device.config().addressable_units()),
        device.config().logical_pages()
    );
    assert!(!device.config().to_toml().contains("indirection_bytes"));
}

#[test]
fn files_count_pages_whatever_the_unit() {
    let of = |unit| config(unit, SchemeKind::RemapSsd, "").expect("a valid file");
    let config = of(16);
    assert_eq!(config.geometry.pages(), 4 * 64 * 4);
    assert_eq!(config.flash_pages(), of(1).flash_pages());
    assert_eq!(DeviceConfig::from_toml(&config.to_toml()), Ok(config));

    // 16 TB have more pages than fit into 31 bits, and fewer units.
    let large = |pages: u64, unit: u32| {
        DeviceConfig::from_toml(&format!(
            "preset = \"fast21-4t\"\n[geometry]\nsuperblocks = 73728\nindirection_bytes = {unit}\npage_bytes = {unit}\n\
             [firmware]\nlpns = {pages}"
        ))
    };
    let config = large(3_906_250_000, 16_384).expect("a valid file");
    assert_eq!(config.firmware.lpns, 976_562_500);
    assert_eq!(config.logical_pages(), 3_906_250_000);
    let config = large(4_300_000_000, 16_384).expect("a valid file");
    assert_eq!(config.firmware.lpns, 1_075_000_000);
    assert!(config.addressable_lpns() > u32::MAX.into());
    let mut stored = config.clone();
    stored.content = ContentMode::Bytes;
    let error = stored.check().unwrap_err().to_string();
    assert!(
        error.contains("stores bytes has at most 4,294,967,295 pages"),
        "{error}"
    );
    let error = large(3_906_250_000, 4096).unwrap_err().to_string();
    assert!(
        error.contains("2,147,483,647") || error.contains("2^31"),
        "{error}"
    );
}

#[test]
fn impossible_units_are_refused() {
    let error = |settings: &[&str]| {
        let config = config(4, SchemeKind::RemapSsd, "").expect("a valid file");
        let settings: Vec<_> = settings.iter().map(|one| one.parse().unwrap()).collect();
        let changed = config.with(&settings).and_then(|changed| {
            changed.check()?;
            Ok(changed)
        });
        changed.unwrap_err().to_string()
    };
    for (settings, wanted) in [
        (
            &["geometry.indirection_bytes=12288"][..],
            "must be 4096, 8192",
        ),
        (
            &["geometry.indirection_bytes=65536"],
            "page_bytes = 16384 must be a multiple of indirection_bytes = 65536",
        ),
        (
            &["geometry.page_bytes=4096"],
            "page_bytes = 4096 must be a multiple",
        ),
        (
            &["geometry.pages_per_block=66"],
            "pages_per_block = 66 must be a multiple of the 4 pages",
        ),
        (
            &["firmware.fs_files=64", "firmware.fs_blocks=64"],
            "lists pages of 4 KiB",
        ),
        (
            &["geometry.page_bytes=65536"],
            "geometry.page_bytes = 65536 needs timing.engine",
        ),
        (
            &["geometry.planes=4"],
            "geometry.planes = 4 needs timing.engine",
        ),
        (
            &["flash.program_ns=400us/900us"],
            "flash.program_ns = [400000, 900000] is a time for each type of page",
        ),
    ] {
        let error = error(settings);
        assert!(error.contains(wanted), "{settings:?}: {error}");
    }
    let text = "geometry.indirection_bytes=131072".parse::<remap_ssd_device::Setting>();
    assert!(text.is_err());

    let config = config(4, SchemeKind::RemapSsd, "").expect("a valid file");
    let error = config.check_unit_is_page().unwrap_err().to_string();
    assert!(error.contains("is for simulated runs"), "{error}");
}

#[test]
fn a_hint_names_a_home_for_a_whole_unit() {
    let mut device = device(4, SchemeKind::WalSsd);
    device.pause_dedup(true);
    let journal = |first: u32, home: u32, len: u32| -> Vec<_> {
        let range = |first| HostLpn::range(Lpn(first).into(), len);
        let pages = range(first).zip(range(home));
        let command = |(lpn, home): (HostLpn, HostLpn)| PageCommand {
            content: 5_000 + u64::from(lpn),
            lpn,
            kind: PageKind::WriteFor { home },
        };
        pages.map(command).collect()
    };
    device.submit_request(0, &journal(0, 400, 8));
    device.submit_request(0, &journal(8, 409, 4));
    let mut remapped = |target, source, len| {
        let (target, source) = (Lpn(target), Lpn(source));
        let done = device.remap(
            0,
            &Remap {
                target,
                source,
                len,
                relocate: false,
                atomic: false,
            },
        );
        (done.remapped, done.copied.total())
    };
    assert_eq!(remapped(400, 0, 8), (8, 0));
    assert_eq!(remapped(412, 8, 4), (0, 4));
}
