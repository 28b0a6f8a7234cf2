//! Scripts of random commands on tiny devices, and the expected contents.

use super::{Random, content, durable, fullest};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Granularity, Lpn, Refusal, Remap, SchemeKind};
use remap_ssd_media::Geometry;
use remap_ssd_media::geometry::Shape;

/// Identity of each LPN's page, or `None` if it reads as zeroes.
pub type Contents = Vec<Option<u64>>;

#[derive(Clone, Copy, Debug)]
pub enum Command {
    Write {
        lpn: u32,
        identity: u64,
    },
    WriteFor {
        lpn: u32,
        home: u32,
        identity: u64,
    },
    /// One command that writes the same content to several pages.
    WriteMore {
        lpn: u32,
        len: u32,
        identity: u64,
    },
    Remap(Remap),
    Deallocate {
        lpn: u32,
        len: u32,
    },
    Flush,
}

/// A small geometry: dies, superblocks, pages per block.
pub fn geometry((dies, superblocks, pages_per_block): (u32, u32, u32)) -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        dies,
        superblocks,
        pages_per_block,
    })
    .expect("valid")
}

/// The geometry of this shape; with hybrid mapping it has more superblocks, for blocks in order and an extension.
pub fn geometry_for(mapping: Granularity, shape: (u32, u32, u32)) -> Geometry {
    let (dies, superblocks, pages_per_block) = shape;
    let more = match mapping {
        Granularity::Page => 0,
        Granularity::Hybrid => 30,
    };
    geometry((dies, superblocks + more, pages_per_block))
}

/// A remap of one page, which keeps its source.
pub fn share(target: u32, source: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len: 1,
        relocate: false,
        atomic: false,
    }
}

/// The same with the least NVRAM that the scheme works with, plus `more`.
pub fn with_log(geometry: &Geometry, config: &Config, more: u64) -> Config {
    let sizes = (1..2000).map(|step| Config {
        log_bytes: 128 * step,
        ..config.clone()
    });
    let least = sizes
        .into_iter()
        .find(|config| config.check(geometry).is_ok());
    let least = least.unwrap_or_else(|| panic!("{} works on no such device", config.scheme));
    Config {
        log_bytes: least.log_bytes + more,
        ..least
    }
}

/// The same with the maximum number of logical pages, minus `spared`. An even number: half of them
/// may be homes of the other half.
pub fn nearly_full(geometry: &Geometry, config: &Config, spared: u32) -> Config {
    Config {
        lpns: (fullest(geometry, config).lpns - spared) & !1,
        ..config.clone()
    }
}

/// All schemes that survive a power cut, with both sizes of entries.
pub fn durable_schemes() -> impl Iterator<Item = (SchemeKind, EntrySize)> {
    durable().flat_map(|scheme| [(scheme, EntrySize::Bytes16), (scheme, EntrySize::Bytes24)])
}

/// Draws a command that the device should accept, of at most `len_max` pages. `identity` is a new
/// content.
pub fn draw(random: &mut Random, ftl: &Ftl, identity: u64, len_max: u32) -> Command {
    let config = ftl.config();
    let lpns = config.lpns;
    let below = |random: &mut Random, n: u32| random.below(u64::from(n)) as u32;
    let (lpn, half) = (below(random, lpns), lpns / 2);
    let len = (1 + below(random, len_max)).min(lpns - lpn);

    if config.scheme.uses_hints() {
        // Pages of the upper half are written for homes in the lower half, and remapped to them.
        let home = below(random, half);
        let len = len.min(half - home);
        return match below(random, 8) {
            0..2 => Command::Remap(Remap {
                target: Lpn(home),
                source: Lpn(home + half),
                len,
                relocate: false,
                atomic: false,
            }),
            2..5 => Command::WriteFor {
                lpn: home + half,
                home,
                identity,
            },
            5 => Command::Deallocate {
                lpn,
                len: len.min(lpns - lpn),
            },
            _ => Command::Write { lpn, identity },
        };
    }

    match below(random, 8) {
        0..3 => {
            let target = below(random, lpns);
            let len = len.min(lpns - target);
            let atomic = config.entry == EntrySize::Bytes24 && random.below(4) > 0;
            let len = if atomic {
                len.min(ftl.atomic_pages_max())
            } else {
                len
            };
            Command::Remap(Remap {
                target: Lpn(target),
                source: Lpn(lpn),
                len,
                relocate: random.below(3) == 0,
                atomic,
            })
        }
        3 => Command::WriteMore {
            lpn,
            len,
            identity: if random.below(2) == 0 { identity } else { 7 },
        },
        4 => Command::Deallocate { lpn, len },
        _ => Command::Write { lpn, identity },
    }
}

pub fn execute(ftl: &mut Ftl, command: Command) -> Result<(), Refusal> {
    match command {
        Command::Write { lpn, identity } => ftl.write(Lpn(lpn), &content(identity)),
        Command::WriteFor {
            lpn,
            home,
            identity,
        } => ftl.write_for(Lpn(lpn), &content(identity), Lpn(home)),
        Command::WriteMore { lpn, len, identity } => {
            ftl.begin_write(Lpn(lpn), len)?;
            (lpn..lpn + len).try_for_each(|lpn| ftl.write_more(Lpn(lpn), &content(identity)))?;
            ftl.end_write();
            Ok(())
        }
        Command::Remap(remap) => ftl.remap(&remap),
        Command::Deallocate { lpn, len } => ftl.deallocate(Lpn(lpn), len),
        Command::Flush => ftl.flush(),
    }
}

/// Applies a command to the contents: the oracle.
pub fn apply(command: Command, contents: &mut Contents) {
    match command {
        Command::Write { lpn, identity } | Command::WriteFor { lpn, identity, .. } => {
            contents[lpn as usize] = Some(identity);
        }
        Command::WriteMore { lpn, len, identity } => {
            contents[lpn as usize..(lpn + len) as usize].fill(Some(identity));
        }
        Command::Remap(Remap {
            target,
            source,
            len,
            relocate,
            ..
        }) => {
            let (target, source, len) = (target.index(), source.index(), len as usize);
            let moved = contents[source..source + len].to_vec();
            if relocate && target != source {
                contents[source..source + len].fill(None);
            }
            contents[target..target + len].copy_from_slice(&moved);
        }
        Command::Deallocate { lpn, len } => contents[lpn as usize..(lpn + len) as usize].fill(None),
        Command::Flush => {}
    }
}
