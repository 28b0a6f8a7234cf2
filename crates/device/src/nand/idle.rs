//! An idle device: where the model begins.
//!
//! Absent: what happens then (`Nand`).

use super::array::Array;
use super::copies::PageWaits;
use super::copyback::Copybacks;
use super::errors::Correction;
use super::events::Events;
use super::graph::{Graph, NONE};
use super::lanes::{Clears, Erases, NvramLane, PendingPrograms};
use super::requests::Requests;
use super::timers::Timers;
use super::units::Units;
use super::{LANES, Nand, NandSpec};
use crate::config::{Errors, Latencies};
use crate::lane::FrontEnd;
use remap_ssd_media::Geometry;

impl Nand {
    /// An idle device at time 0. `latencies` has the times of everything that is not flash.
    pub(crate) fn new(geometry: Geometry, spec: NandSpec, latencies: Latencies) -> Self {
        let dies = geometry.dies_total();
        let channels = (0..dies).map(|die| geometry.channel_of_die(die) as usize + 1);
        let channels = channels.max().unwrap_or(1);

        // Dies are dealt to channels in turn, and those of a channel to its chips.
        let chips = (dies / spec.dies_per_chip.max(1)) as usize;
        let array = Array::new(spec, geometry.word_line(), chips, channels, |chip| {
            chip % channels
        });
        let leaves = array.leaves();

        // With as many flash pages in a word line as page types, or a multiple, the place in the word line decides the type.
        let flash_page = geometry.word_line().parts() * geometry.word_line().planes;
        let of_line = geometry.stripe() / flash_page;
        let types = [spec.read, spec.program].map(|times| times.times().len() as u32);
        let lines_alike = types.iter().all(|types| of_line.is_multiple_of(*types));

        Self {
            spec,
            latencies,
            geometry,
            flash_page,
            lines_alike,
            chips: chips as u32,
            front: FrontEnd::new(&latencies),
            now: 0,
            graph: Graph::new(chips),
            events: Events::new(leaves + LANES),
            array,
            lanes: [(); LANES].map(|()| NvramLane::default()),
            timers: Timers::default(),
            nvram_ns: [0; LANES],
            link_pages: [0; 2],
            requests: Requests::new(spec.whole_reads),
            programs: PendingPrograms::new(geometry),
            units: Units::new(geometry, chips as u32, &spec),
            erases: Erases::new(geometry),
            copybacks: Copybacks::new(geometry, spec.copybacks),
            page_waits: PageWaits::default(),
            clears: Clears::default(),
            own_stores: Vec::new(),
            errors: None,
            row: None,
            lookup: NONE,
            looked_up: NONE,
            lookup_began: 0,
            lookup_total: 0,
            merge: NONE,
            merge_is_hashed: false,
            goes_on: false,
        }
    }

    /// Flash with bit errors.
    pub(crate) fn with_errors(self, errors: &Errors) -> Self {
        let errors = Correction::new(errors);
        Self { errors, ..self }
    }
}
