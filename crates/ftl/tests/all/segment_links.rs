//! A segment's position in its group when its second word is unreadable: later entries must be
//! found in the right order.

use crate::kit::{Random, content, device, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, Refusal, Remap, SchemeKind};
use remap_ssd_media::{Media, Page};

const LPNS: u32 = 100;
/// Words of a segment, and of all segments, which are at the end of NVRAM.
const SEGMENT_WORDS: usize = 8;
const LOG_WORDS: usize = 128;

fn flipped(ftl: &Ftl, word: usize) -> Option<Ftl> {
    let mut media = Media::from_image(&ftl.media().to_image());
    media.plant(|faults| {
        faults.flips.insert(word, 0b11 << 20);
    });
    Ftl::recover(media, ftl.config().clone())
        .ok()
        .map(|(ftl, _)| ftl)
}

/// Remaps to pages of one superblock, with writes in between, so that its group has several
/// segments and is rewritten.
fn churn(ftl: &mut Ftl, model: &mut [u64], random: &mut Random, commands: u32) {
    for _ in 0..commands {
        let (lpn, source) = (12 + random.below(30) as u32, random.below(12) as u32);
        if random.below(3) == 0 {
            let identity = random.next() >> 20;
            put(ftl, lpn, identity);
            model[lpn as usize] = identity;
        } else {
            ftl.remap(&Remap {
                target: Lpn(lpn),
                source: Lpn(source),
                len: 1,
                relocate: false,
                atomic: false,
            })
            .unwrap();
            model[lpn as usize] = model[source as usize];
        }
        ftl.media_mut().ops.clear();
    }
}

fn check(ftl: &mut Ftl, model: &[u64], what: &str) {
    for (lpn, is) in model.iter().enumerate() {
        let read = ftl.read(Lpn(lpn as u32));
        let is_right = read == Ok(Page::Identity(*is)) || read == Err(Refusal::MediaError);
        assert!(is_right, "{what}: LPN {lpn} is {is}, and reads as {read:?}");
    }
}

#[test]
fn what_is_stored_after_a_link_was_mended_is_not_taken_for_older() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::RemapSsdX,
        SchemeKind::RemapSsdLh,
    ] {
        let bytes = (8 * LOG_WORDS) as u64;
        let config = Config {
            lpns: LPNS,
            dedup: false,
            log_bytes: bytes,
            segment_bytes: 64,
            ..small_config(scheme)
        };
        let mut ftl = device(small_geometry(), &config);
        (0..LPNS).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let mut model: Vec<u64> = (1..=u64::from(LPNS)).collect();
        let mut random = Random(11);
        let mut tried = 0;

        for round in 0..100 {
            churn(&mut ftl, &mut model, &mut random, 5);
            let log = ftl.media().nvram_words() - LOG_WORDS;
            for link in (log..log + LOG_WORDS)
                .step_by(SEGMENT_WORDS)
                .map(|head| head + 1)
            {
                let used = ftl.media().peek(link) != 0;
                let Some(mut mended) = flipped(&ftl, link).filter(|_| used) else {
                    continue;
                };
                let mut model = model.clone();
                check(
                    &mut mended,
                    &model,
                    &format!("{scheme}, round {round}, link {link}"),
                );
                churn(&mut mended, &mut model, &mut random, 2);

                // The first words of slots: their numbers.
                for word in (log..log + LOG_WORDS)
                    .step_by(2)
                    .filter(|word| mended.media().peek(*word) != 0)
                {
                    let Some(mut twice) = flipped(&mended, word) else {
                        continue;
                    };
                    check(
                        &mut twice,
                        &model,
                        &format!("{scheme}, round {round}, link {link}, then word {word}"),
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 1000, "{scheme}: {tried} second faults");
    }
}
