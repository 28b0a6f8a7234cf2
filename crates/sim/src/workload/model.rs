//! Models of the applications and traces of the published evaluations, as endless sources.
//!
//! A model is a *script* (`script.rs`) that yields requests; its contents are chosen apart from it.
//!
//! **Scaling.** Each model has a page set of a published size, and a reference device of a
//! published size ([`ModelKind::reference_pages`]). A smaller device stands for that device scaled
//! down: the set shrinks in the same proportion. A larger device does not enlarge it.
//! [`ModelSpec::size`] multiplies it.
//!
//! **Caching.** The file sets are smaller than the memory of the published hosts, so the reads of
//! applications end in the host's page cache and only writes reach the device, unless a model has
//! the option `direct`. Internal reads of file systems and databases (compaction) always reach the
//! device.
//!
//! Invariants: `lpn < addressable`; the stream does not depend on the batch size; nothing is
//! allocated per page once a model runs. Absent: time; metadata of the file system (one journal
//! commit in five seconds is less than a hundredth of the pages).

use std::fmt;
use std::str::FromStr;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::content::Contents;
use super::script::{Scale, Script, Steps};
use super::{
    Bursts, ContentModel, Endless, WorkloadError, fileserver, fiu, journal, oltp, snapshot,
    sysbench, tpcc, ycsb,
};
use crate::source::{HostPage, Source, SourceError};

/// A workload described in a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// Filebench's file server: whole files created, appended to, read and deleted.
    Fileserver,
    /// Filebench's database: small random updates of a few files and a log.
    Oltp,
    /// YCSB's updates of zipfian keys in a log-structured merge tree.
    Ycsb,
    /// TPC-C's transactions on a page store with a redo log.
    Tpcc,
    /// Sysbench's transactions with Pareto rows on a page store with a redo log.
    Sysbench,
    /// A model of the FIU trace *homes*, from its statistics and an excerpt.
    FiuHomes,
    /// A model of the FIU trace *mail*.
    FiuMail,
    /// A model of the FIU trace *web-vm*.
    FiuWebvm,
    /// A physical journal that names homes, checkpointed by remaps.
    Journal,
    /// Volumes that are written and cloned by long copies.
    Snapshot,
}

/// All models, in the order of the help texts.
pub const MODELS: [ModelKind; 10] = [
    ModelKind::Fileserver,
    ModelKind::Oltp,
    ModelKind::Ycsb,
    ModelKind::Tpcc,
    ModelKind::Sysbench,
    ModelKind::FiuHomes,
    ModelKind::FiuMail,
    ModelKind::FiuWebvm,
    ModelKind::Journal,
    ModelKind::Snapshot,
];

impl ModelKind {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::Fileserver => "fileserver",
            ModelKind::Oltp => "oltp",
            ModelKind::Ycsb => "ycsb",
            ModelKind::Tpcc => "tpcc",
            ModelKind::Sysbench => "sysbench",
            ModelKind::FiuHomes => "fiu-homes",
            ModelKind::FiuMail => "fiu-mail",
            ModelKind::FiuWebvm => "fiu-webvm",
            ModelKind::Journal => "journal",
            ModelKind::Snapshot => "snapshot",
        }
    }

    /// Its source and parameters, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            ModelKind::Fileserver => fileserver::ABOUT,
            ModelKind::Oltp => oltp::ABOUT,
            ModelKind::Ycsb => ycsb::ABOUT,
            ModelKind::Tpcc => tpcc::ABOUT,
            ModelKind::Sysbench => sysbench::ABOUT,
            ModelKind::FiuHomes => fiu::HOMES.about,
            ModelKind::FiuMail => fiu::MAIL.about,
            ModelKind::FiuWebvm => fiu::WEBVM.about,
            ModelKind::Journal => journal::ABOUT,
            ModelKind::Snapshot => snapshot::ABOUT,
        }
    }

    /// Logical pages of the device of the published page set.
    pub fn reference_pages(self) -> u32 {
        const GIB: u32 = 1 << 18;
        match self {
            // FAST'21, setup A.
            ModelKind::Fileserver | ModelKind::Oltp | ModelKind::Ycsb => 32 * GIB,
            // The same device, as there is no published one.
            ModelKind::Journal | ModelKind::Snapshot => 32 * GIB,
            // Coldmap.
            ModelKind::Tpcc | ModelKind::Sysbench => 16 * GIB,
            // FAST'21, setup B.
            ModelKind::FiuHomes | ModelKind::FiuMail | ModelKind::FiuWebvm => 256 * GIB,
        }
    }

    /// The default contents: the papers' 30 % duplicates, or a trace's own share of them.
    pub fn content_default(self) -> ContentModel {
        match self {
            ModelKind::FiuHomes => fiu::HOMES.content(),
            ModelKind::FiuMail => fiu::MAIL.content(),
            ModelKind::FiuWebvm => fiu::WEBVM.content(),
            // Pages are shared by commands.
            ModelKind::Journal | ModelKind::Snapshot => ContentModel::Unique,
            _ => ContentModel::Papers {
                duplicate_ratio: 0.3,
                exponent: ContentModel::PAPERS_EXPONENT,
            },
        }
    }

    /// Returns true if it names the home of each page that it writes, and remaps nothing else.
    pub fn names_homes(self) -> bool {
        self == ModelKind::Journal
    }

    /// Arrival times of its requests, for a trace.
    pub(crate) fn bursts(self) -> Option<Bursts> {
        match self {
            ModelKind::FiuHomes => Some(fiu::HOMES.bursts()),
            ModelKind::FiuMail => Some(fiu::MAIL.bursts()),
            ModelKind::FiuWebvm => Some(fiu::WEBVM.bursts()),
            _ => None,
        }
    }

    fn script(self, scale: &Scale) -> Result<Box<dyn Script + Send>, WorkloadError> {
        Ok(match self {
            ModelKind::Fileserver => Box::new(fileserver::Fileserver::new(scale)?),
            ModelKind::Oltp => Box::new(oltp::Oltp::new(scale)?),
            ModelKind::Ycsb => Box::new(ycsb::Ycsb::new(scale)?),
            ModelKind::Tpcc => Box::new(tpcc::Tpcc::new(scale)?),
            ModelKind::Sysbench => Box::new(sysbench::Sysbench::new(scale)?),
            ModelKind::FiuHomes => Box::new(fiu::Fiu::new(&fiu::HOMES, scale)?),
            ModelKind::FiuMail => Box::new(fiu::Fiu::new(&fiu::MAIL, scale)?),
            ModelKind::FiuWebvm => Box::new(fiu::Fiu::new(&fiu::WEBVM, scale)?),
            ModelKind::Journal => Box::new(journal::Journal::new(scale)?),
            ModelKind::Snapshot => Box::new(snapshot::Snapshot::new(scale)?),
        })
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A model by name, as on the command line: `NAME[,size=FACTOR][,direct][,nodiscard]`.
///
/// ```
/// use remap_ssd_sim::workload::{ModelKind, ModelSpec};
/// let spec: ModelSpec = "fileserver,size=2,nodiscard".parse().unwrap();
/// assert_eq!((spec.kind, spec.size, spec.discard), (ModelKind::Fileserver, 2.0, false));
/// assert_eq!(spec.to_string(), "fileserver,size=2,nodiscard");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelSpec {
    /// The published workload.
    pub kind: ModelKind,
    /// Size of the page set, in multiples of the published one.
    pub size: f64,
    /// True if the applications' reads go to the device, and small writes are parts of pages.
    pub direct: bool,
    /// True if pages of deleted files are deallocated.
    pub discard: bool,
}

impl ModelSpec {
    /// The workload with its published parameters.
    pub fn new(kind: ModelKind) -> Self {
        Self {
            kind,
            size: 1.0,
            direct: false,
            discard: true,
        }
    }

    /// Creates the source, before its first request. The seed is the stream's; identities of
    /// contents are above `content_base`.
    ///
    /// # Errors
    /// A value is out of range, or there are too few pages; the message suggests another.
    pub fn source(
        &self,
        content: ContentModel,
        addressable: u64,
        seed: u64,
        content_base: u64,
    ) -> Result<Model, WorkloadError> {
        // The bounds of the text again: a spec may be created in code.
        if !(self.size > 0.0 && self.size <= 1e6) {
            return Err(WorkloadError::new(format!(
                "a size of {}: above 0 and at most a million",
                self.size
            )));
        }

        let requests = Xoshiro256PlusPlus::seed_from_u64(seed);
        // The contents' generator starts 2^128 steps later, so that the two never overlap.
        let mut draws = requests.clone();
        draws.jump();

        let reference = f64::from(self.kind.reference_pages());
        let scale = Scale {
            name: self.kind.name(),
            // Page sets are smaller by far.
            addressable: u32::try_from(addressable).unwrap_or(u32::MAX),
            // A device smaller than the published one gets a smaller load; a larger one, the same.
            factor: self.size * (addressable as f64 / reference).min(1.0),
            direct: self.direct,
            rng: requests,
        };

        Ok(Model {
            script: self.kind.script(&scale)?,
            steps: Steps::new(
                self.discard,
                Contents::new(content, addressable, content_base, draws)?,
            ),
        })
    }
}

impl FromStr for ModelSpec {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let mut fields = text.split(',');
        let name = fields.next().unwrap_or_default();

        let Some(kind) = MODELS.into_iter().find(|kind| kind.name() == name) else {
            let names = MODELS.map(ModelKind::name).join(", ");
            return Err(WorkloadError::new(format!(
                "unknown model `{name}`: one of {names}"
            )));
        };

        let mut spec = Self::new(kind);
        // Options in any order; the last of a kind counts.
        for option in fields {
            match (option, option.strip_prefix("size=").map(str::parse::<f64>)) {
                ("direct", _) => spec.direct = true,
                ("nodiscard", _) => spec.discard = false,
                (_, Some(Ok(size))) if size > 0.0 && size <= 1e6 => spec.size = size,
                _ => {
                    return Err(WorkloadError::new(format!(
                        "the option `{option}` in `{text}` is none of size=FACTOR (above 0), direct, nodiscard"
                    )));
                }
            }
        }

        Ok(spec)
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.size != 1.0 {
            write!(f, ",size={}", self.size)?;
        }
        f.write_str(if self.direct { ",direct" } else { "" })?;
        f.write_str(if self.discard { "" } else { ",nodiscard" })
    }
}

/// An endless source of a model's page operations.
pub struct Model {
    script: Box<dyn Script + Send>,
    steps: Steps,
}

impl Source for Model {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        self.steps.fill(&mut *self.script, out, want);
        Ok(true)
    }
}

impl Endless for Model {
    fn content_end(&self) -> u64 {
        self.steps.content_end()
    }
}
