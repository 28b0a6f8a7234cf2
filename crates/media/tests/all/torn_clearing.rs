//! A clearing that a power cut tears: campaigns reach every state that it can leave.

use crate::kit::railed;
use remap_ssd_media::{After, Media, Outcome, Purpose};

const WORDS: usize = 4;
const SEEDS: u64 = 4096;

/// 16 subsets of 4 words, of 4,096 seeds 256 each; 15 is the standard deviation of a fair draw.
#[test]
fn every_subset_of_a_torn_clearing_is_left_about_as_often_as_any_other() {
    for start in [0, 1, 17] {
        let mut media = railed();
        for word in start..start + WORDS {
            media.store(word, 7, Purpose::Host, After::NOTHING);
        }
        media.settle_all();
        media.clear(start, WORDS, After::NOTHING);

        let mut seen = [0; 1 << WORDS];
        for seed in 0..SEEDS {
            let mut left = Media::from_image(&media.cut(|| Outcome::Torn(seed)));
            let mut subset = 0;
            for at in 0..WORDS {
                let word = left.load(start + at).expect("no flips are planted");
                assert!(word == 0 || word == 7, "a word is never torn: {word}");
                subset |= usize::from(word == 0) << at;
            }
            seen[subset] += 1;
        }
        let is_fair = |count: &u32| (256 - 75..=256 + 75).contains(count);
        assert!(seen.iter().all(is_fair), "words from {start} on: {seen:?}");
    }
}
