//! Blocks that fail while little else is durable: their masks in NVRAM determine where recovery
//! looks for heads.
//!
//! Only operations that an acknowledgement waits for complete, with those that they are ordered
//! after. So a store that a head or an erase fails to wait for is missing in the next cut.

use crate::kit::{Random, device, put, small_config};
use remap_ssd_ftl::{Config, Ftl, Lpn, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{BlockId, Geometry, Media, OpKind, Outcome, Page};

fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        dies: 3,
        superblocks: 20,
        pages_per_block: 5,
    })
    .expect("valid")
}

/// Fate of the operations that no acknowledgement waited for.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Lost,
    StoresLand,
    FlashLands,
    ErasesLand,
    ErasesAreLost,
    ProgramsAreLost,
    StoresLandBut(u32),
    LandsBut(u32),
}

fn cut(ftl: &Ftl, rest: Rest) -> Media {
    let mut nth = 0;
    let image = ftl.media().cut_by(|kind| {
        let is_store = kind == OpKind::NvWrite || kind == OpKind::NvClear;
        nth += u32::from(is_store || matches!(rest, Rest::LandsBut(_)));
        let lands = match rest {
            Rest::Lost => false,
            Rest::StoresLand => is_store,
            Rest::FlashLands => !is_store,
            Rest::ErasesLand => kind != OpKind::Program,
            Rest::ErasesAreLost => kind != OpKind::Erase,
            Rest::ProgramsAreLost => kind != OpKind::Program,
            Rest::StoresLandBut(missing) => is_store && nth != missing,
            Rest::LandsBut(missing) => nth != missing,
        };
        if lands {
            Outcome::Whole
        } else {
            Outcome::Absent
        }
    });

    let mut media = Media::from_image(&image);
    let faults = ftl.media().faults().clone();
    media.plant(|planted| *planted = faults);
    media
}

/// A script in which blocks fail; each command is cut. Returns the number of retired blocks, and of
/// failed programs.
fn run(config: &Config, seed: u64, settles: bool) -> (u64, u64) {
    let geometry = geometry();
    let mut ftl = device(geometry, config);
    let lpns = config.lpns;
    let mut random = Random(seed * 0x1234_5677 + 9);
    (0..lpns).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let mut model: Vec<u64> = (1..=u64::from(lpns)).collect();
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();

    let mut failures = 6;
    for step in 0..260u64 {
        // The block that would hold the head matters most.
        if failures > 0 && random.below(12) == 0 {
            failures -= 1;
            let sb = remap_ssd_media::SbId(random.below(geometry.superblocks().into()) as u32);
            let die = if random.below(4) > 0 {
                sb.0 % 3
            } else {
                random.below(3) as u32
            };
            let block: BlockId = geometry.block(sb, die);
            ftl.media_mut().plant(|faults| match random.below(2) {
                0 => drop(faults.erase.insert(block)),
                _ => drop(faults.program.insert(block, random.below(3) as u32 / 2)),
            });
        }

        let lpn = random.below(lpns.into()) as u32;
        let before = model[lpn as usize];
        ftl.media_mut().begin_command();
        put(&mut ftl, lpn, 1000 + step);
        let ack = ftl.media_mut().take_ack();
        ftl.media_mut().ops.clear();
        model[lpn as usize] = 1000 + step;

        let judge = |ftl: &Ftl, rest: Rest, acknowledged: bool| {
            let at = || format!("{}, seed {seed}, step {step}, {rest:?}", config.scheme);
            let (mut found, _) = Ftl::recover(cut(ftl, rest), config.clone())
                .unwrap_or_else(|error| panic!("{}: {error}", at()));
            found
                .check()
                .unwrap_or_else(|what| panic!("{}: {what}", at()));
            for (at_lpn, content) in (0..).zip(&model) {
                let read = found.read(Lpn(at_lpn));
                let is_old = at_lpn == lpn && !acknowledged && read == Ok(Page::Identity(before));
                let is_right = is_old || read == Ok(Page::Identity(*content));
                assert!(
                    is_right,
                    "{}: LPN {at_lpn} reads {read:?} and not {content}",
                    at()
                );
            }
        };

        let rests = [
            Rest::StoresLand,
            Rest::FlashLands,
            Rest::ErasesLand,
            Rest::ErasesAreLost,
            Rest::ProgramsAreLost,
        ];
        rests.into_iter().for_each(|rest| judge(&ftl, rest, false));
        (1..8).for_each(|missing| judge(&ftl, Rest::StoresLandBut(missing), false));
        (0..4).for_each(|_| judge(&ftl, Rest::LandsBut(1 + random.below(40) as u32), false));

        ftl.media_mut().settle(&ack);
        judge(&ftl, Rest::Lost, true);
        judge(&ftl, Rest::FlashLands, true);
        judge(&ftl, Rest::StoresLand, true);
        if settles || ftl.media().pending() > 300 {
            ftl.media_mut().settle_all();
        }
    }
    (ftl.stats().blocks_retired, ftl.stats().program_failures)
}

#[test]
fn no_acknowledged_page_depends_on_a_word_that_is_not_durable() {
    let (mut retired, mut failed) = (0, 0);
    for seed in 1..=12 {
        let config = Config {
            lpns: 90,
            dedup: false,
            gc_free: 0.0,
            dealloc_slots: 16,
            ..small_config(SchemeKind::None)
        };
        let counts = run(&config, seed, seed % 3 == 0);
        (retired, failed) = (retired + counts.0, failed + counts.1);
    }
    assert!(
        retired > 12 && failed > 12,
        "{retired} blocks retired, {failed} failed programs"
    );
}
