//! Small devices for tests.

pub mod script;

use remap_ssd_ftl::{Config, Ftl, Lpn, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{ContentMode, Geometry, Image, Media, OpKind, Outcome, Page, Payload, Ppn};
use std::ops::Range;

/// 24 superblocks of 4 dies x 16 pages.
pub fn small_geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 2,
        dies: 4,
        superblocks: 24,
        pages_per_block: 16,
    })
    .expect("valid")
}

pub fn small_config(scheme: SchemeKind) -> Config {
    let config = Config {
        lpns: 600,
        scheme,
        log_bytes: 8 << 10,
        segment_bytes: 128,
        dealloc_slots: 16,
        ..Config::default()
    };
    let tables = config.tables_bytes(&small_geometry());
    Config {
        log_bytes: config.log_bytes.max(tables),
        ..config
    }
}

/// The same with the maximum number of logical pages.
pub fn fullest(geometry: &Geometry, config: &Config) -> Config {
    let with = |lpns| Config {
        lpns,
        ..config.clone()
    };
    (1..geometry.pages())
        .rev()
        .map(with)
        .find(|config| config.check(geometry).is_ok())
        .expect("fewer work")
}

pub fn device(geometry: Geometry, config: &Config) -> Ftl {
    let words = config.nvram_words(&geometry);
    Ftl::format(
        Media::blank(geometry, ContentMode::Identity, words),
        config.clone(),
    )
    .expect("the configuration works")
}

/// A number from the environment that sets how long a test runs; an invalid value fails the test.
#[expect(clippy::disallowed_methods, reason = "how long a test runs is not what it tests")]
pub fn number_from(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
}

pub fn small(scheme: SchemeKind) -> Ftl {
    device(small_geometry(), &small_config(scheme))
}

pub fn content(identity: u64) -> Payload<'static> {
    Payload::Identity(identity)
}

/// Writes a page; not inlined, since each call of `Ftl::write` takes long to compile.
#[inline(never)]
pub fn put(ftl: &mut Ftl, lpn: u32, identity: u64) {
    ftl.write(Lpn(lpn), &content(identity))
        .expect("there is room");
}

/// A generator that is good enough for scripts and the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
}

/// All schemes that survive a power cut.
pub fn durable() -> impl Iterator<Item = SchemeKind> {
    SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
}

/// The flash page that a read of an LPN reads.
pub fn page_of(ftl: &mut Ftl, lpn: u32) -> Ppn {
    ftl.media_mut().ops.clear();
    ftl.read(Lpn(lpn)).unwrap();
    ftl.media()
        .ops
        .iter()
        .find(|op| op.kind == OpKind::Read)
        .expect("a flash read")
        .page
}

/// Reads every LPN; none may be a media error.
pub fn read_all(ftl: &mut Ftl) -> script::Contents {
    let lpns = Lpn::range(Lpn::ZERO, ftl.config().lpns);
    let read = |lpn| match ftl.read(lpn).expect("readable") {
        Page::Identity(identity) => Some(identity),
        _ => None,
    };
    let contents = lpns.map(read).collect();
    ftl.media_mut().ops.clear();
    contents
}

/// Number of operations that a cut decides: a program unit is one.
pub fn choices(ftl: &Ftl) -> usize {
    let mut choices = 0;
    ftl.media().cut(|| {
        choices += 1;
        Outcome::Whole
    });
    choices
}

/// What a cut leaves that undoes these of the pending operations, and those after them.
pub fn cut(ftl: &Ftl, absent: &Range<usize>) -> Image {
    let mut ops = 0..;
    ftl.media().cut(|| {
        let op = ops.next().expect("without end");
        if absent.contains(&op) {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    })
}

/// Powers off and on without a loss; all tables are consistent afterwards.
pub fn recovered(ftl: Ftl) -> (Ftl, remap_ssd_ftl::RecoveryReport) {
    let config = ftl.config().clone();
    let (ftl, report) = Ftl::recover(ftl.into_media(), config).expect("recovers");
    ftl.check().expect("consistent after recovery");
    (ftl, report)
}
