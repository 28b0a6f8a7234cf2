//! Pages with more owners than a small counter holds, and more than a superblock has pages.
//!
//! A collection moves such a page with all its owners, or leaves it where it is: owners without room for an
//! entry would each take a page, and together more superblocks than are free.

use crate::kit::script::{
    Command, Contents, apply, durable_schemes, execute, geometry, geometry_for, nearly_full, share,
    with_log,
};
use crate::kit::{self, Random, device, durable, page_of, put, read_all, recovered};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Granularity, Lpn, SchemeKind};
use remap_ssd_media::Geometry;
use std::ops::Range;

/// Dies, superblocks and pages per block; superblocks have as few as five pages of data.
const SHAPES: [(u32, u32, u32); 4] = [(1, 60, 7), (2, 40, 6), (2, 30, 8), (4, 24, 10)];

fn scarce(
    scheme: SchemeKind,
    entry: EntrySize,
    mapping: Granularity,
    variant: usize,
) -> (Geometry, Config) {
    let geometry = geometry_for(mapping, SHAPES[variant % SHAPES.len()]);
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        mapping,
        block_pages: 2,
        extension: 0.2,
        segment_bytes: [96, 72, 144][variant % 3],
        dealloc_slots: [64, 16, 6][variant / 3 % 3],
        count_max: [u16::MAX, 40, 17][variant / 2 % 3],
        watermark: [1.0, 0.95][variant / 4 % 2],
        dedup: variant.is_multiple_of(2),
        gc_free: [0.0, 0.25][variant / 5 % 2],
        ..Config::default()
    };
    let config = with_log(&geometry, &config, [0, 1024, 2048, 3072, 4096][variant % 5]);
    (geometry, nearly_full(&geometry, &config, 0))
}

/// A device and what it should hold. The upper two thirds of the LPNs are owners of shared pages.
struct Subject {
    ftl: Ftl,
    contents: Contents,
    random: Random,
    next: u64,
}

impl Subject {
    fn new(geometry: Geometry, config: &Config, seed: u64) -> Self {
        Self {
            ftl: device(geometry, config),
            contents: vec![None; config.lpns as usize],
            random: Random(seed),
            next: 1000,
        }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.random.below(end.into()) as u32
    }

    fn execute(&mut self, command: Command) {
        execute(&mut self.ftl, command)
            .unwrap_or_else(|refusal| panic!("{command:?}: {refusal}, of {:?}", self.ftl.config()));
        apply(command, &mut self.contents);
    }

    fn overwrite(&mut self, lpns: Range<u32>, pages: u32) {
        for _ in 0..pages {
            let lpn = lpns.start + self.below(lpns.end - lpns.start);
            self.next += 1;
            let identity = self.next;
            self.execute(Command::Write { lpn, identity });
        }
    }

    /// A page gets many owners, one by one.
    fn fan_out(&mut self) {
        let (lpns, own) = (self.ftl.config().lpns, self.ftl.config().lpns / 3);
        let source = self.below(own);
        let first = own + self.below(lpns - own);
        for at in 0..self.below(lpns - own) {
            let target = own + (first - own + at) % (lpns - own);
            self.execute(Command::Remap(share(target, source)));
        }
    }

    fn check(&mut self) {
        self.ftl.check().unwrap();
        assert_eq!(read_all(&mut self.ftl), self.contents);
    }
}

/// Schemes under which a page may have many owners, with both sizes of entries.
fn sharing() -> impl Iterator<Item = (SchemeKind, EntrySize)> {
    durable_schemes().filter(|(scheme, _)| scheme.facts().remaps && !scheme.uses_hints())
}

#[test]
fn a_device_with_little_room_for_entries_always_finds_something_to_collect() {
    let rounds = kit::number_from("MANY_OWNERS").unwrap_or(8);
    for (scheme, entry) in sharing() {
        for variant in 0..20 {
            let mapping = if scheme.needs_pages().is_none() && variant % 4 == 3 {
                Granularity::Hybrid
            } else {
                Granularity::Page
            };
            let (geometry, config) = scarce(scheme, entry, mapping, variant);
            let mut subject = Subject::new(geometry, &config, variant as u64 + 1);
            let own = config.lpns / 3;
            subject.overwrite(0..own, 2 * config.lpns);
            for round in 0..rounds {
                for _ in 0..3 {
                    subject.fan_out();
                    subject.overwrite(0..own, 2 * geometry.pages_per_superblock());
                }
                subject.overwrite(0..own, config.lpns);
                subject.check();
                if round % 4 == 3 {
                    subject.ftl = recovered(subject.ftl).0;
                    subject.check();
                }
            }
        }
    }
}

/// Each of two pages has a third of the LPNs, and collection brings them together in one superblock: then its
/// references may be more than there is room for.
#[test]
fn the_owners_of_two_pages_meet_in_one_superblock() {
    for (scheme, entry) in sharing() {
        for more in (0..10).map(|step| 700 * step) {
            let geometry = geometry(SHAPES[0]);
            let config = Config {
                lpns: 40,
                scheme,
                entry,
                count_max: u16::MAX,
                dedup: false,
                segment_bytes: 96,
                gc_free: 0.0,
                wear_gap: 4,
                ..Config::default()
            };
            let config = with_log(&geometry, &config, more);
            let config = nearly_full(&geometry, &config, 0);
            let mut subject = Subject::new(geometry, &config, 7);
            let third = config.lpns / 3;
            for hot in 0..2 {
                subject.overwrite(hot..hot + 1, 1);
                for target in third * (hot + 1)..third * (hot + 2) {
                    subject.execute(Command::Remap(share(target, hot)));
                }
                subject.overwrite(2..third, 40);
            }
            subject.overwrite(2..third, 3000);
            subject.check();
            subject.ftl = recovered(subject.ftl).0;
            subject.check();
        }
    }
}

/// With room for the entries no owner gets a page of its own.
#[test]
fn a_page_moves_with_hundreds_of_owners() {
    for scheme in durable().filter(|scheme| scheme.facts().remaps && !scheme.uses_hints()) {
        let config = Config {
            count_max: u16::MAX,
            dedup: false,
            log_bytes: 64 << 10,
            wear_gap: 2,
            ..kit::small_config(scheme)
        };
        let mut ftl = device(kit::small_geometry(), &config);
        put(&mut ftl, 0, 7);
        (1..500).for_each(|lpn| ftl.remap(&share(lpn, 0)).unwrap());
        let own = ftl.stats().host_programs;
        // PebbleSSD's slots are few.
        assert_eq!(own > 1, scheme == SchemeKind::Pebble, "{scheme}");

        let before = page_of(&mut ftl, 0);
        let mut random = Random(3);
        for step in 0.. {
            assert!(step < 60_000, "{scheme}: the page never moves");
            put(&mut ftl, 500 + random.below(100) as u32, 1000 + step);
            if step % 64 == 0 && page_of(&mut ftl, 0) != before {
                break;
            }
        }
        ftl.check().unwrap();
        assert_eq!(ftl.stats().gc_copies, 0, "{scheme}");
        let (mut ftl, _) = recovered(ftl);
        let contents = read_all(&mut ftl);
        assert!(contents[..500].iter().all(|identity| *identity == Some(7)));

        // A snapshot after the other is dropped.
        (0..499).for_each(|lpn| ftl.deallocate(Lpn(lpn), 1).unwrap());
        ftl.check().unwrap();
        assert_eq!(read_all(&mut ftl)[499], Some(7), "{scheme}");
    }
}
