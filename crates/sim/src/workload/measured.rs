//! Contents that are written as many times as was measured.
//!
//! Contents are classed by the number of times that each is written in all: 2, 3 to 4, 5 to 8 and
//! so on, as powers of two. A class has a share of the writes, and a mean number of copies; the
//! rest of the writes have contents written once. A write draws its class. With a chance of one in
//! the mean it brings a new content, which replaces the oldest of the class, and otherwise it
//! repeats one of the class. So a content is written as many times as the mean on average, whatever
//! the number of contents kept, and shares hold for a stream of any length.
//!
//! Invariants: tables have at most half as many contents as there are pages. Absent: the order in which contents
//! were repeated, which counts do not tell.

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

use super::draw::{Chance, below_any, unit};
use super::{ContentModel, WorkloadError};

/// Number of classes: the last one has the contents written more than 2^15 times.
const CLASSES: usize = 16;

/// Number of times that contents are written: for each class, the mean and its share of the writes.
///
/// As text: `COPIES@SHARE` for each class, separated by colons. The shares sum to at most 1; the
/// other writes have contents that are written once.
///
/// ```
/// use remap_ssd_sim::workload::Copies;
///
/// // Of eight contents six are written once, one twice and one six times.
/// let copies = Copies::of([1, 1, 1, 1, 1, 1, 2, 6]);
/// assert_eq!(copies.to_string(), "2@0.1429:6@0.4286");
/// assert_eq!(copies.to_string().parse(), Ok(copies));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Copies {
    /// In order; unused ones are at the end, and have a share of 0.
    classes: [CopyClass; CLASSES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CopyClass {
    /// Mean number of times that each content is written.
    copies: f32,
    /// Share of the writes.
    share: f32,
}

impl Copies {
    /// From the number of times that each content was written.
    pub fn of(counts: impl IntoIterator<Item = u32>) -> Self {
        let (mut contents, mut writes, mut all) = ([0_u64; CLASSES], [0_u64; CLASSES], 0);
        for count in counts {
            all += u64::from(count);
            if count > 1 {
                // 2 is the first class, 3 and 4 the next.
                let class = ((count - 1).ilog2() as usize).min(CLASSES - 1);
                contents[class] += 1;
                writes[class] += u64::from(count);
            }
        }

        // Four digits: more would be noise.
        let rounded = |value: f64, digits: f64| ((value * digits).round() / digits) as f32;
        let mut measured = Self::default();
        let mut unused = measured.classes.iter_mut();
        for (contents, writes) in contents.into_iter().zip(writes) {
            let share = rounded(writes as f64 / all.max(1) as f64, 1e4);
            if share > 0.0
                && let Some(class) = unused.next()
            {
                let copies = rounded(writes as f64 / contents as f64, 1e2);
                *class = CopyClass { copies, share };
            }
        }
        measured
    }

    /// The model that writes contents as often; unique ones if none was written twice.
    pub fn model(self) -> ContentModel {
        match self.used().next() {
            Some(_) => ContentModel::Measured { copies: self },
            None => ContentModel::Unique,
        }
    }

    fn used(&self) -> impl Iterator<Item = &CopyClass> {
        self.classes.iter().filter(|class| class.share > 0.0)
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, CopyClass { copies, share }) in self.used().enumerate() {
            let colon = if index > 0 { ":" } else { "" };
            write!(f, "{colon}{copies}@{share}")?;
        }
        Ok(())
    }
}

impl FromStr for Copies {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = |reason: &str| WorkloadError::new(format!("`{text}`: {reason}"));
        let mut copies = Self::default();
        let mut free = copies.classes.iter_mut();

        for field in text.split(':') {
            let numbers = field.split_once('@').and_then(|(copies, share)| {
                Some((copies.parse::<f32>().ok()?, share.parse::<f32>().ok()?))
            });
            let Some((copies, share)) = numbers else {
                return Err(wrong(&format!(
                    "`{field}` is not COPIES@SHARE, as in 2.5@0.1"
                )));
            };
            if !(copies > 1.0 && copies.is_finite()) {
                return Err(wrong(&format!(
                    "{copies} copies of a content: above 1 are possible"
                )));
            }
            if !(share > 0.0 && share <= 1.0) {
                return Err(wrong(&format!(
                    "a share of {share}: above 0 to 1 are possible"
                )));
            }
            let class = free
                .next()
                .ok_or_else(|| wrong(&format!("at most {CLASSES} classes are possible")))?;
            *class = CopyClass { copies, share };
        }

        // Rounded shares may sum to a little more.
        let sum: f32 = copies.used().map(|class| class.share).sum();
        if sum > 1.001 {
            return Err(wrong(&format!(
                "the shares sum to {sum}: at most 1 is possible"
            )));
        }
        Ok(copies)
    }
}

impl Serialize for Copies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The state of the model.
pub(super) struct Measured {
    classes: Vec<Class>,
}

struct Class {
    /// A draw up to this number, and above that of the class before, is this one's.
    upto: f64,
    /// The write brings a new content.
    new: Chance,
    /// The newest contents, the oldest overwritten first.
    contents: Vec<u64>,
    contents_max: usize,
    oldest: usize,
}

impl Measured {
    pub(super) fn new(copies: Copies, addressable: u64) -> Self {
        let mut upto = 0.0;
        let class = |class: &CopyClass| {
            let (copies, share) = (f64::from(class.copies), f64::from(class.share));
            upto += share;
            Class {
                upto,
                new: Chance::of(1.0 / copies),
                contents: Vec::new(),
                // Copies are repeated over as many writes as the device has pages.
                contents_max: (addressable as f64 * share / copies).ceil() as usize,
                oldest: 0,
            }
        };
        Self {
            classes: copies.used().map(class).collect(),
        }
    }

    /// Returns the content of the next write; `fresh` makes a new one.
    pub(super) fn draw(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
        mut fresh: impl FnMut() -> u64,
    ) -> u64 {
        let drawn = unit(rng);
        let Some(class) = self.classes.iter_mut().find(|class| drawn <= class.upto) else {
            return fresh();
        };

        if !class.new.happens(rng) && !class.contents.is_empty() {
            return class.contents[below_any(class.contents.len() as u64, rng) as usize];
        }
        let content = fresh();
        if class.contents.len() < class.contents_max {
            class.contents.push(content);
        } else {
            class.contents[class.oldest] = content;
            class.oldest = (class.oldest + 1) % class.contents_max;
        }
        content
    }
}
