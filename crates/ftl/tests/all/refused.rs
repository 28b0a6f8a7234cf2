//! A failed atomic command changes nothing, neither in the tables nor after power-on.

use crate::kit::{content, device, durable, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Refusal, Remap};
use remap_ssd_media::{BlockId, Media, Page};

const LPNS: u32 = 600;

/// Every second page has the maximum number of owners, so remapping it means copying it.
fn half_shared(config: &Config) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    for lpn in 0..LPNS / 2 {
        if config.scheme.uses_hints() {
            ftl.write_for(Lpn(lpn + LPNS / 2), &content(u64::from(lpn) + 1), Lpn(lpn))
                .unwrap()
        } else {
            ftl.write(Lpn(lpn + LPNS / 2), &content(u64::from(lpn) + 1))
                .unwrap()
        }
    }

    for lpn in (0..40).step_by(2) {
        let (target, source) = (100 + lpn, LPNS / 2 + lpn);
        ftl.remap(&Remap {
            target: Lpn(target),
            source: Lpn(source),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
        ftl.write(Lpn(lpn), &content(5000 + u64::from(lpn)))
            .unwrap();
    }

    // Two unmapped sources, so that their targets lose their mappings.
    ftl.deallocate(Lpn(LPNS / 2 + 5), 2).unwrap();
    ftl
}

fn read_all(ftl: &mut Ftl) -> Vec<Page> {
    (0..LPNS)
        .map(|lpn| ftl.read(Lpn(lpn)).expect("readable"))
        .collect()
}

#[test]
fn a_command_that_finds_no_block_to_program_leaves_all_as_it_was() {
    let geometry = small_geometry();
    let mut in_the_middle = 0;
    for scheme in durable() {
        let small = small_config(scheme);
        let log_bytes = small.log_bytes + (16 << 10);
        let config = Config {
            entry: EntrySize::Bytes24,
            dedup: false,
            dealloc_slots: 64,
            count_max: 2,
            log_bytes,
            ..small
        };
        for (spared, relocate) in
            (0..geometry.blocks()).flat_map(|block| [(block, false), (block, true)])
        {
            let mut ftl = half_shared(&config);
            let before = read_all(&mut ftl);
            // Of all blocks, one accepts a few more pages.
            let rows: Vec<u32> = (0..geometry.blocks())
                .map(|block| ftl.media().next_row(BlockId(block)))
                .collect();
            ftl.media_mut().plant(|faults| {
                for (block, row) in (0..).zip(rows) {
                    faults
                        .program
                        .insert(BlockId(block), row + u32::from(block == spared) * 3);
                }
            });
            let copies = ftl.stats().host_programs;
            let command = Remap {
                target: Lpn(0),
                source: Lpn(LPNS / 2),
                len: 12,
                relocate,
                atomic: true,
            };
            let at = format!("{scheme}, block {spared} spared, {command:?}");
            if ftl.remap(&command).is_ok() {
                continue;
            }
            in_the_middle += u32::from(ftl.stats().host_programs > copies + 1);
            ftl.check().unwrap_or_else(|what| panic!("{at}: {what}"));
            assert!(read_all(&mut ftl) == before, "{at}");
            assert_eq!(ftl.remap(&command), Err(Refusal::ReadOnly), "{at}");
            let mut media = Media::from_image(&ftl.media().to_image());
            for round in 0..2 {
                let recovered = Ftl::recover(media, config.clone());
                let (mut ftl, _) =
                    recovered.unwrap_or_else(|error| panic!("{at}, power-on {round}: {error}"));
                assert!(read_all(&mut ftl) == before, "{at}, power-on {round}");
                ftl.check()
                    .unwrap_or_else(|what| panic!("{at}, power-on {round}: {what}"));
                media = ftl.into_media();
            }
        }
    }

    assert!(
        in_the_middle > 20,
        "{in_the_middle} commands failed after a page was programmed"
    );
}
