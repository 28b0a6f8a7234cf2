//! Any workload by name: a pattern of `spec.rs` or a model of `model.rs`, on all or a part of the
//! addressable pages, with flushes or without.
//!
//! ```text
//! randwrite,pages=4   oltp,size=2   randwrite,span=0.775 (the first 77.5 % of the pages)
//! randwrite,flush=32 (a flush after every 32 requests)
//! ```
//!
//! Invariant: `Display` output parses back to the same workload.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::flushed::Flushed;
use super::{
    Bursts, ContentModel, Endless, MODELS, ModelKind, ModelSpec, Pattern, Workload, WorkloadConfig,
    WorkloadError, WorkloadSpec,
};

/// A workload without its contents, device size and seed.
///
/// ```
/// use remap_ssd_sim::workload::NamedWorkload;
/// let oltp: NamedWorkload = "oltp,direct".parse().unwrap();
/// let mut source = oltp.source(oltp.content_default(), 1 << 16, 1, 0).unwrap();
/// assert!(!oltp.names_homes() && oltp.bursts().is_none());
/// let mut pages = Vec::new();
/// source.fill(&mut pages, 100).unwrap();
/// assert!(pages.iter().all(|page| page.lpn.get() < 1 << 16));
/// assert!(pages.iter().all(|page| page.content < source.content_end()));
///
/// let half: NamedWorkload = "oltp,span=0.5".parse().unwrap();
/// assert_eq!((half.pages(1000), half.to_string()), (500, "oltp,span=0.5".into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedWorkload {
    /// Its requests.
    pub kind: WorkloadKind,
    /// Share of the addressable pages that it uses, above 0 and at most 1; from page 0.
    pub span: f64,
    /// Requests between two flushes; `None`: it does not flush.
    pub flush: Option<NonZeroU32>,
}

/// The requests of a [`NamedWorkload`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkloadKind {
    /// Addresses that follow a pattern.
    Pattern(WorkloadSpec),
    /// A model of an application or trace.
    Model(ModelSpec),
}

impl Default for NamedWorkload {
    /// `randwrite`.
    fn default() -> Self {
        WorkloadKind::Pattern(WorkloadSpec {
            pattern: Pattern::Random,
            read_percent: 0,
            request_pages: 1,
        })
        .into()
    }
}

impl From<WorkloadKind> for NamedWorkload {
    /// On all addressable pages, without flushes.
    fn from(kind: WorkloadKind) -> Self {
        Self {
            kind,
            span: 1.0,
            flush: None,
        }
    }
}

impl NamedWorkload {
    /// Number of pages that it uses, of this many addressable ones; at least one.
    pub fn pages(&self, addressable: u64) -> u64 {
        ((addressable as f64 * self.span) as u64).max(1)
    }

    /// Creates the source, before its first request. Identities of contents are above
    /// `content_base`.
    ///
    /// # Errors
    /// A value is out of range, or there are too few pages; the message suggests another.
    pub fn source(
        &self,
        content: ContentModel,
        addressable: u64,
        seed: u64,
        content_base: u64,
    ) -> Result<Box<dyn Endless + Send>, WorkloadError> {
        let addressable = self.pages(addressable);

        let source: Box<dyn Endless + Send> = match &self.kind {
            WorkloadKind::Pattern(spec) => {
                let config = spec.config(content, addressable, seed);
                // Workloads may share a device with separate contents: the base keeps them apart.
                Box::new(Workload::new(WorkloadConfig {
                    content_base,
                    ..config
                })?)
            }
            WorkloadKind::Model(spec) => {
                Box::new(spec.source(content, addressable, seed, content_base)?)
            }
        };

        Ok(match self.flush {
            Some(every) => Box::new(Flushed::new(source, every)),
            None => source,
        })
    }

    /// Returns true if it names the remap target of the pages it writes. A scheme that remaps only
    /// such pages has nothing to do under any other workload.
    pub fn names_homes(&self) -> bool {
        matches!(self.kind, WorkloadKind::Model(spec) if spec.kind.names_homes())
    }

    /// Arrival times of its requests, if it has any.
    pub fn bursts(&self) -> Option<Bursts> {
        match &self.kind {
            WorkloadKind::Pattern(_) => None,
            WorkloadKind::Model(spec) => spec.kind.bursts(),
        }
    }

    /// The contents of its writes unless others are named.
    pub fn content_default(&self) -> ContentModel {
        match &self.kind {
            WorkloadKind::Pattern(_) => ContentModel::Papers {
                duplicate_ratio: 0.3,
                exponent: ContentModel::PAPERS_EXPONENT,
            },
            WorkloadKind::Model(spec) => spec.kind.content_default(),
        }
    }
}

impl FromStr for NamedWorkload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (mut span, mut flush) = (1.0, None);
        let mut fields = Vec::new();
        for field in text.split(',') {
            // The last one counts, as of the other options.
            match field.split_once('=') {
                Some(("span", share)) => span = parse_span(text, share)?,
                Some(("flush", requests)) => flush = Some(parse_flush(text, requests)?),
                _ => fields.push(field),
            }
        }

        // No model has the name of a pattern, so the first word decides.
        let kind = if MODELS
            .map(ModelKind::name)
            .contains(&fields.first().copied().unwrap_or_default())
        {
            WorkloadKind::Model(fields.join(",").parse()?)
        } else {
            WorkloadKind::Pattern(fields.join(",").parse()?)
        };

        Ok(Self { kind, span, flush })
    }
}

fn parse_span(text: &str, share: &str) -> Result<f64, WorkloadError> {
    let span = share.parse::<f64>().ok();
    span.filter(|span| *span > 0.0 && *span <= 1.0)
        .ok_or_else(|| {
            WorkloadError::new(format!(
                "`span={share}` in `{text}` is not a share above 0 and at most 1"
            ))
        })
}

fn parse_flush(text: &str, requests: &str) -> Result<NonZeroU32, WorkloadError> {
    requests.parse().map_err(|_| {
        WorkloadError::new(format!(
            "`flush={requests}` in `{text}` is not a number of requests from 1 to {}",
            u32::MAX
        ))
    })
}

impl fmt::Display for NamedWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            WorkloadKind::Pattern(spec) => spec.fmt(f)?,
            WorkloadKind::Model(spec) => spec.fmt(f)?,
        }

        if self.span != 1.0 {
            write!(f, ",span={}", self.span)?;
        }
        match self.flush {
            Some(every) => write!(f, ",flush={every}"),
            None => Ok(()),
        }
    }
}
