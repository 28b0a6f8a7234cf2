//! Bit errors: the model sees every operation on flash, and decides the outcome of every read.

use crate::kit::{WORDS, page, program, read, slot, tiny};
use remap_ssd_media::{
    After, BitErrors, BlockId, ContentMode, Lpn, Media, MediaError, Oob, Op, OpKind, Ppn, Purpose,
    ReadOutcome, StoredPage,
};
use std::sync::{Arc, Mutex};

/// Reads of pages of the first block fail until it has been erased; all others need two retries.
#[derive(Clone, Default)]
struct FirstBlock(Arc<Mutex<Vec<String>>>);

impl FirstBlock {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl BitErrors for FirstBlock {
    fn read(&mut self, ppn: Ppn) -> ReadOutcome {
        self.note(format!("read {}", ppn.0));
        let erased = self.0.lock().unwrap().iter().any(|what| what == "erased 0");
        if tiny().slot(ppn).block == BlockId(0) && !erased {
            ReadOutcome::Failed
        } else {
            ReadOutcome::Retries(2)
        }
    }

    fn programmed(&mut self, page: Ppn, wsn: u64) {
        self.note(format!("programmed {} by {wsn}", page.0));
    }

    fn erased(&mut self, block: BlockId) {
        self.note(format!("erased {}", block.0));
    }
}

/// Pages of two blocks, programmed before flash has bit errors.
fn flash() -> (Media, FirstBlock) {
    let mut media = Media::blank(tiny(), ContentMode::Identity, WORDS);
    for die in [0, 1] {
        program(&mut media, page(die, 0), 7, After::NOTHING).unwrap();
    }
    let model = FirstBlock::default();
    assert!(media.is_sound() && !media.has_bit_errors());
    media.begin_bit_errors(Box::new(model.clone()));
    assert!(!media.is_sound() && media.has_bit_errors());
    media.ops.clear();
    (media, model)
}

fn outcomes(media: &Media) -> Vec<ReadOutcome> {
    let reads = media.ops.iter().filter(|op| op.kind == OpKind::Read);
    reads.map(|op: &Op| op.outcome).collect()
}

#[test]
fn a_page_that_nothing_corrects_cannot_be_read_until_its_block_is_erased() {
    let (mut media, model) = flash();
    assert_eq!(read(&mut media, page(0, 0)), Err(MediaError::Uncorrectable));
    assert_eq!(read(&mut media, page(1, 0)), Ok(7));
    media.plant(|faults| faults.read.clear());
    assert_eq!(read(&mut media, page(0, 0)), Err(MediaError::Uncorrectable));

    let id = media.name_next();
    media.erase(BlockId(0), id, After::NOTHING).unwrap();
    program(&mut media, page(0, 0), 8, After::NOTHING).unwrap();
    assert_eq!(read(&mut media, page(0, 0)), Ok(8));

    let (failed, retried) = (ReadOutcome::Failed, ReadOutcome::Retries(2));
    assert_eq!(outcomes(&media), [failed, retried, failed, retried]);
    let [first, second] = [page(0, 0).0, page(1, 0).0];
    let wsn = media.oob(page(0, 0)).wsn();
    assert_eq!(
        *model.0.lock().unwrap(),
        [
            format!("read {first}"),
            format!("read {second}"),
            format!("read {first}"),
            "erased 0".into(),
            format!("programmed {first} by {wsn}"),
            format!("read {first}"),
        ]
    );
}

#[test]
fn a_copy_of_a_page_that_nothing_corrects_says_so() {
    let (mut media, _) = flash();
    for (from, is_lost) in [(page(0, 0), true), (page(1, 0), false)] {
        let to = if is_lost { slot(2, 0) } else { slot(3, 0) };
        let oob = Oob::new(Lpn(1), 1, 1);
        media
            .copy(from, to, oob, b"lost", Purpose::Gc, After::NOTHING)
            .unwrap();
        assert_eq!(media.is_meta(to.ppn), is_lost);
    }
    assert_eq!(read(&mut media, page(3, 0)), Ok(7));
    assert_eq!(outcomes(&media)[0], ReadOutcome::Failed);
}

// Its stronger code takes soft decoding instead.
#[test]
fn metadata_is_always_corrected() {
    let (mut media, _) = flash();
    let oob = Oob::new(Lpn(1), 1, 1);
    let stored = StoredPage::Meta(b"record".as_slice().into());
    media
        .program(page(0, 1), oob, stored, Purpose::Meta, After::NOTHING)
        .unwrap();

    let found = media.read_meta(page(0, 1), Purpose::Meta).unwrap();
    assert!(found.is_some_and(|(_, bytes)| &bytes[..] == b"record"));
    assert!(media.read_oob(page(0, 0), Purpose::Meta).unwrap().is_some());
    media
        .copy(
            page(0, 1),
            slot(2, 0),
            oob,
            b"lost",
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();
    let found = media.read_meta(page(2, 0), Purpose::Meta).unwrap();
    assert!(found.is_some_and(|(_, bytes)| &bytes[..] == b"record"));
    assert_eq!(outcomes(&media)[..3], [ReadOutcome::Soft; 3]);
}
