//! A source whose writes get the contents of a model: a trace that was recorded without contents.
//!
//! Invariants: requests, addresses and times are those of the source; the contents depend on the
//! pages that it writes, in order, and on the seed alone. Absent: the models (`content`).

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::content::Contents;
use super::present::Drawn;
use super::{ContentModel, WorkloadError};
use crate::source::{HostPage, PageKind, Source, SourceError};

/// A source, with the contents of a model in place of its own.
pub struct Modelled<S> {
    source: S,
    contents: Contents,
}

impl<S: Source> Modelled<S> {
    /// All pages of `source` are below `addressable`; contents get identities above `base`.
    ///
    /// # Errors
    /// A value of the model is out of range.
    pub fn new(
        source: S,
        model: ContentModel,
        addressable: u64,
        seed: u64,
        base: u64,
    ) -> Result<Self, WorkloadError> {
        // The generator of a workload's contents with this seed.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        rng.jump();

        let contents = Contents::repeating(Drawn::Written, model, addressable, base, rng)?;
        Ok(Self { source, contents })
    }

    /// The source, as far as it was read.
    pub fn into_inner(self) -> S {
        self.source
    }
}

impl<S: Source> Source for Modelled<S> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let start = out.len();
        let more = self.source.fill(out, want)?;

        for page in &mut out[start..] {
            // A write of a part of a page stores a whole one too.
            if let PageKind::Write | PageKind::WriteFor { .. } | PageKind::ReadModifyWrite =
                page.kind
            {
                page.content = self.contents.next(page.lpn);
            }
        }
        Ok(more)
    }

    fn skipped(&self) -> u64 {
        self.source.skipped()
    }

    fn len_hint(&self) -> Option<u64> {
        self.source.len_hint()
    }
}
