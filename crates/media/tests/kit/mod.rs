//! Small media for tests.

#![allow(dead_code)]

pub mod folder;
pub mod numbers;

use remap_ssd_media::geometry::{PageSlot, Shape};
use remap_ssd_media::{
    After, BlockId, ContentMode, Geometry, Image, Lpn, Media, MediaError, Oob, Outcome, Page, Ppn,
    Purpose, SbId, StoredPage,
};

/// 4 superblocks of 2 dies x 4 pages.
pub fn tiny() -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        dies: 2,
        superblocks: 4,
        pages_per_block: 4,
    })
    .expect("valid")
}

/// Words of NVRAM: not a multiple of a shared line.
pub const WORDS: usize = 70;

/// Erased, with a power rail.
pub fn railed() -> Media {
    let mut media = Media::blank(tiny(), ContentMode::Identity, WORDS);
    media.attach_rail();
    media
}

/// A page of a block, by row.
pub fn page(block: u32, row: u32) -> Ppn {
    let geometry = tiny();
    let (sb, die) = geometry.place_of_block(BlockId(block));
    geometry.page(sb, row * geometry.dies() + die)
}

/// The place of a page of a block, by row.
pub fn slot(block: u32, row: u32) -> PageSlot {
    tiny().slot(page(block, row))
}

/// Programs a data page on behalf of the host.
pub fn program(media: &mut Media, ppn: Ppn, identity: u64, after: After) -> Result<(), MediaError> {
    let oob = Oob::new(Lpn(identity as u32), identity, 1);
    media.program(
        ppn,
        oob,
        StoredPage::Identity(identity),
        Purpose::Host,
        after,
    )
}

/// The result of reading a page: its identity, or an error.
pub fn read(media: &mut Media, ppn: Ppn) -> Result<u64, MediaError> {
    match media.read(ppn, Purpose::Host)? {
        Page::Identity(identity) => Ok(identity),
        other => panic!("{ppn:?} holds {other:?}"),
    }
}

/// Powers on the result of a cut with these outcomes, in turn; the last one repeats.
pub fn after_cut(media: &Media, outcomes: &[Outcome]) -> Media {
    let mut at = 0;
    let image = media.cut(|| {
        let outcome = outcomes[at.min(outcomes.len() - 1)];
        at += 1;
        outcome
    });
    Media::from_image(&image)
}

/// Every block of a superblock.
pub fn blocks(sb: u32) -> [BlockId; 2] {
    [tiny().block(SbId(sb), 0), tiny().block(SbId(sb), 1)]
}

/// The image of a device with some of everything: data, metadata, a torn page, a spoiled block,
/// NVRAM.
pub fn lived_in(mode: ContentMode) -> Image {
    let mut media = Media::blank(tiny(), mode, WORDS);
    for row in 0..4 {
        for block in 0..2 {
            let identity = u64::from(10 * block + row + 1);
            let stored = match mode {
                ContentMode::None => StoredPage::Nothing,
                ContentMode::Identity => StoredPage::Identity(identity),
                ContentMode::Bytes => StoredPage::Bytes([identity as u8; 4096].into()),
            };
            media
                .program(
                    page(block, row),
                    Oob::new(Lpn(row), identity, 3),
                    stored,
                    Purpose::Host,
                    After::NOTHING,
                )
                .expect("no fault is planted");
        }
    }

    let head = StoredPage::Meta(b"head".as_slice().into());
    media
        .program(
            page(2, 0),
            Oob::new(Oob::HEAD, 9, 3),
            head,
            Purpose::Meta,
            After::NOTHING,
        )
        .expect("no fault");

    media.plant(|faults| {
        faults.program.insert(BlockId(2), 1);
        faults.erase.insert(BlockId(5));
    });

    let torn = media.program(
        page(2, 1),
        Oob::new(Lpn(7), 7, 3),
        StoredPage::Nothing,
        Purpose::Host,
        After::NOTHING,
    );

    assert_eq!(torn, Err(MediaError::ProgramFailed));
    let id = media.name_next();
    assert_eq!(
        media.erase(BlockId(5), id, After::NOTHING),
        Err(MediaError::EraseFailed)
    );

    media
        .erase(BlockId(4), id, After::NOTHING)
        .expect("only block 5 fails");
    for word in (0..WORDS).step_by(3) {
        media.store(word, 0x1111 * word as u64, Purpose::Host, After::NOTHING);
    }
    media.to_image()
}
