//! Any workload by name: a pattern of `spec.rs` or a model of `model.rs`.
//!
//! Invariant: `Display` output parses back to the same workload.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{
    Bursts, ContentModel, Endless, MODELS, ModelKind, ModelSpec, Workload, WorkloadConfig,
    WorkloadError, WorkloadSpec,
};

/// A workload without its contents, device size and seed.
///
/// ```
/// use remap_ssd_sim::source::Lpn;
/// use remap_ssd_sim::workload::NamedWorkload;
/// let oltp: NamedWorkload = "oltp,direct".parse().unwrap();
/// let mut source = oltp.source(oltp.content_default(), 1 << 16, 1, 0).unwrap();
/// assert!(!oltp.names_homes() && oltp.bursts().is_none());
/// let mut pages = Vec::new();
/// source.fill(&mut pages, 100).unwrap();
/// assert!(pages.iter().all(|page| page.lpn < Lpn(1 << 16)));
/// assert!(pages.iter().all(|page| page.content < source.content_end()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NamedWorkload {
    /// Addresses that follow a pattern.
    Pattern(WorkloadSpec),
    /// A model of an application or trace.
    Model(ModelSpec),
}

impl NamedWorkload {
    /// Creates the source, before its first request. Identities of contents are above
    /// `content_base`.
    ///
    /// # Errors
    /// A value is out of range, or there are too few pages; the message suggests another.
    pub fn source(
        &self,
        content: ContentModel,
        addressable: u32,
        seed: u64,
        content_base: u64,
    ) -> Result<Box<dyn Endless + Send>, WorkloadError> {
        Ok(match self {
            NamedWorkload::Pattern(spec) => {
                let config = spec.config(content, addressable, seed);
                // Workloads may share a device with separate contents: the base keeps them apart.
                Box::new(Workload::new(WorkloadConfig {
                    content_base,
                    ..config
                })?)
            }
            NamedWorkload::Model(spec) => {
                Box::new(spec.source(content, addressable, seed, content_base)?)
            }
        })
    }

    /// Returns true if it names the remap target of the pages it writes. A scheme that remaps only
    /// such pages has nothing to do under any other workload.
    pub fn names_homes(&self) -> bool {
        matches!(self, NamedWorkload::Model(spec) if spec.kind.names_homes())
    }

    /// Arrival times of its requests, if it has any.
    pub fn bursts(&self) -> Option<Bursts> {
        match self {
            NamedWorkload::Pattern(_) => None,
            NamedWorkload::Model(spec) => spec.kind.bursts(),
        }
    }

    /// Default contents.
    pub fn content_default(&self) -> ContentModel {
        match self {
            NamedWorkload::Pattern(_) => ContentModel::Papers {
                duplicate_ratio: 0.3,
                exponent: ContentModel::PAPERS_EXPONENT,
            },
            NamedWorkload::Model(spec) => spec.kind.content_default(),
        }
    }
}

impl FromStr for NamedWorkload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        // No model has the name of a pattern, so the first word decides.
        let name = text.split(',').next().unwrap_or_default();
        if MODELS.map(ModelKind::name).contains(&name) {
            return Ok(NamedWorkload::Model(text.parse()?));
        }
        Ok(NamedWorkload::Pattern(text.parse()?))
    }
}

impl fmt::Display for NamedWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamedWorkload::Pattern(spec) => spec.fmt(f),
            NamedWorkload::Model(spec) => spec.fmt(f),
        }
    }
}
