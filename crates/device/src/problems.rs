//! Checks of a whole configuration.
//!
//! Invariants: a checked configuration can be formatted; an error lists all problems at once.
//! Absent: ranges of single keys (`keys`).

use crate::config::{DeviceConfig, DeviceConfigError, Errors, Flash, TimingConfig, TimingEngine};
use crate::keys::{self, KeyProblem};
use remap_ssd_ftl::Config;
use remap_ssd_media::{ContentMode, WordLine};

impl DeviceConfig {
    /// Checks each value, and that they are consistent.
    ///
    /// # Errors
    /// The problem and what would work: one sentence, or a line for each invalid value.
    pub fn check(&self) -> Result<(), DeviceConfigError> {
        let mut wrong = keys::problems(&self.to_value());

        if self.firmware.dedup && self.content == ContentMode::None {
            wrong.push(KeyProblem {
                path: "content".into(),
                text: "firmware.dedup compares contents: content must be \"identity\" or \"bytes\""
                    .into(),
                meant: None,
            });
        }

        if self.link.write_saves_ns > self.link.command_ns {
            wrong.push(problem(
                "link.write_saves_ns",
                "link.write_saves_ns must be at most link.command_ns, of which it is a part",
            ));
        }
        wrong.extend(self.contradictions_of_units());
        wrong.extend(self.contradictions_of_time());
        wrong.extend(self.contradictions_of_errors());

        // It adds values up, so each must be valid.
        if wrong.is_empty()
            && let Err(error) = self.firmware.check(&self.geometry)
        {
            return Err(DeviceConfigError(error.to_string()));
        }

        if wrong.is_empty() {
            Ok(())
        } else {
            Err(listed(&wrong, &|_| None))
        }
    }
}

impl DeviceConfig {
    /// Checks that the indirection unit is a page.
    ///
    /// # Errors
    /// It is larger: identities of contents are then those of units.
    pub fn check_unit_is_page(&self) -> Result<(), DeviceConfigError> {
        match self.geometry.word_line().indirection_bytes {
            4096 => Ok(()),
            bytes => Err(DeviceConfigError(format!(
                "geometry.indirection_bytes = {bytes} is for simulated runs of workloads, and for devices that store bytes: contents that are identities are not known page by page"
            ))),
        }
    }

    /// What a device with a larger indirection unit does not have.
    fn contradictions_of_units(&self) -> Vec<KeyProblem> {
        let mut wrong = Vec::new();
        if self.geometry.host_pages() == 1 {
            return wrong;
        }
        if self.content == ContentMode::Bytes && self.logical_pages() > u32::MAX.into() {
            wrong.push(problem(
                "firmware.lpns",
                "firmware.lpns: a device that stores bytes has at most 4,294,967,295 pages of 4 KiB",
            ));
        }
        if self.firmware.fs_files > 0 || self.firmware.fs_blocks > 0 {
            wrong.push(problem(
                "geometry.indirection_bytes",
                "geometry.indirection_bytes above 4096 needs firmware.fs_files = 0 and firmware.fs_blocks = 0: a file map lists pages of 4 KiB",
            ));
        }
        wrong
    }

    /// Checks that a command's completion time is known when it is submitted.
    ///
    /// # Errors
    /// It is not, with the engine `nand`: later commands may delay it.
    pub fn check_known_ends(&self) -> Result<(), DeviceConfigError> {
        match self.timing.engine {
            TimingEngine::Published => Ok(()),
            TimingEngine::Nand => Err(DeviceConfigError(
                "timing.engine = \"nand\" gives the times of simulated runs: here a command's end must be known when it is submitted, \
                 as with \"published\""
                    .into(),
            )),
        }
    }

    /// Values that the model of time does not use, or that contradict each other.
    fn contradictions_of_time(&self) -> Vec<KeyProblem> {
        match self.timing.engine {
            TimingEngine::Nand => self.contradictions_of_nand(),
            TimingEngine::Published => self.keys_of_nand_alone(),
        }
    }

    fn keys_of_nand_alone(&self) -> Vec<KeyProblem> {
        let Self { flash, timing, .. } = self;
        // A key at its default changes nothing: a file may name all keys.
        let has_own_keys = TimingConfig {
            engine: TimingEngine::default(),
            ..*timing
        } != TimingConfig::default();

        let mut wrong = Vec::new();
        let times = [
            ("flash.read_ns", flash.read_ns),
            ("flash.program_ns", flash.program_ns),
        ];
        for (path, times) in times {
            if let several @ [first, _, ..] = times.times() {
                let text = format!(
                    "{path} = {several:?} is a time for each type of page of a word line, which needs timing.engine = \"nand\": \
                     give one time, such as {first}"
                );
                wrong.push(problem(path, &text));
            }
        }
        let word_line = self.geometry.word_line();
        let unit = word_line.indirection_bytes;
        let keys = [
            ("geometry.planes", word_line.planes, 1),
            ("geometry.page_bytes", word_line.page_bytes, unit),
            ("geometry.cell_bits", word_line.bits, 1),
        ];
        for (path, value, usual) in keys.into_iter().filter(|(_, value, usual)| value > usual) {
            let text = format!(
                "{path} = {value} needs timing.engine = \"nand\"; without it, it is {usual}"
            );
            wrong.push(problem(path, &text));
        }
        if has_own_keys {
            wrong.push(problem(
                "timing",
                "the keys of [timing] other than engine are used by timing.engine = \"nand\" alone",
            ));
        }
        wrong
    }

    fn contradictions_of_nand(&self) -> Vec<KeyProblem> {
        let Self { flash, timing, .. } = self;
        let (channels, dies) = (self.geometry.channels(), self.geometry.dies_total());
        let group = channels.saturating_mul(timing.dies_per_chip);

        let mut wrong = Vec::new();
        if self.background.lookup_stalls_dies {
            wrong.push(problem(
                "background.lookup_stalls_dies",
                "background.lookup_stalls_dies is a choice of the published emulators: timing.engine = \"nand\" needs it to be false",
            ));
        }

        wrong.extend(self.times_of_word_lines());
        let fastest = flash.read_ns.times().iter().min();
        if fastest.is_some_and(|fastest| timing.part_saves_ns >= *fastest) {
            wrong.push(problem(
                "timing.part_saves_ns",
                "timing.part_saves_ns must be less than each time of flash.read_ns",
            ));
        }
        if has_slc_cache(self) && timing.part_saves_ns >= flash.slc_read_ns {
            wrong.push(problem(
                "timing.part_saves_ns",
                "timing.part_saves_ns must be less than flash.slc_read_ns",
            ));
        }

        if has_slc_cache(self) && self.errors.rate > 0.0 {
            let path = match self.firmware.slc_share > 0.0 {
                true => "firmware.slc_share",
                false => "firmware.slc_dynamic",
            };
            wrong.push(problem(
                path,
                &format!("{path} needs errors.rate = 0: the error model knows one number of bits in a cell"),
            ));
        }

        if timing.independent_planes && timing.dies_per_chip > 1 {
            wrong.push(problem(
                "timing.independent_planes",
                "timing.independent_planes needs timing.dies_per_chip = 1: dies of a chip take turns",
            ));
        }

        wrong.extend(self.contradictions_of_registers());
        wrong.extend(self.contradictions_of_suspension());

        if timing.dies_per_chip > 1 && !dies.is_multiple_of(group.max(1)) {
            wrong.push(problem(
                "timing.dies_per_chip",
                "timing.dies_per_chip must divide the dies of each channel",
            ));
        }
        wrong
    }

    /// Suspensions that take longer than what they interrupt.
    fn contradictions_of_suspension(&self) -> Vec<KeyProblem> {
        let Self { flash, timing, .. } = self;
        let fastest = flash.program_ns.times().iter().copied().min().unwrap_or(0);
        let program_ns = timing.suspend_ns;
        let (erase_path, erase_ns) = match timing.erase_suspend_ns {
            Some(own) => ("timing.erase_suspend_ns", own),
            None => ("timing.suspend_ns", program_ns),
        };
        let programs = if has_slc_cache(self) && flash.slc_program_ns < fastest {
            ("flash.slc_program_ns", flash.slc_program_ns)
        } else {
            ("flash.program_ns", fastest)
        };
        let erases = ("flash.erase_ns", flash.erase_ns);

        let mut wrong = Vec::new();
        for (suspends, path, suspend_ns, (operation, time), switch) in [
            (
                suspends_programs(self),
                "timing.suspend_ns",
                program_ns,
                programs,
                "timing.suspensions",
            ),
            (
                suspends_erases(self),
                erase_path,
                erase_ns,
                erases,
                "timing.erase_suspensions",
            ),
        ] {
            if suspends && suspend_ns > time {
                wrong.push(problem(
                    path,
                    &format!(
                        "{path} = {suspend_ns} must be at most {operation} = {time}: a read would wait less for the end of the operation. \
                         {switch} = 0 turns its suspension off"
                    ),
                ));
            }
        }
        wrong
    }

    /// What cache registers and copybacks need.
    fn contradictions_of_registers(&self) -> Vec<KeyProblem> {
        let Self { flash, timing, .. } = self;
        let mut wrong = Vec::new();
        for (path, is_on) in [
            ("timing.cache_read", timing.cache_read),
            ("timing.cache_program", timing.cache_program),
        ] {
            if is_on && (flash.transfer_ns == 0 || timing.dies_per_chip > 1) {
                wrong.push(problem(
                    path,
                    &format!(
                        "{path} needs flash.transfer_ns above 0, during which a die goes on, and timing.dies_per_chip = 1: dies of a chip take turns"
                    ),
                ));
            }
        }

        if timing.copybacks > 0 && self.geometry.stripe() > 1 {
            wrong.push(problem(
                "timing.copybacks",
                "timing.copybacks needs planes, page_bytes and cell_bits of 1, 4096 and 1: a copyback moves a whole flash page",
            ));
        }

        if timing.copybacks > 0 && self.errors.rate > 0.0 {
            wrong.push(problem(
                "timing.copybacks",
                "timing.copybacks needs errors.rate = 0: nothing corrects the bit errors of a copyback, and the error model does not carry them over to the copy",
            ));
        }
        wrong
    }
}

impl DeviceConfig {
    /// A note if a page takes longer to read than to program, as on no flash. Grids may ask for it, so it is no error.
    pub fn reads_slower_than_programs(&self) -> Option<String> {
        let Flash {
            read_ns,
            program_ns,
            ..
        } = self.flash;
        let (reads, programs) = (read_ns.times(), program_ns.times());

        // One time is that of all page types.
        let of = |times: &[u64], at: usize| times[at.min(times.len() - 1)];
        let types = 0..reads.len().max(programs.len());
        let mut pairs = types.map(|at| (of(reads, at), of(programs, at)));
        let (read, program) = pairs.find(|(read, program)| read > program)?;
        Some(format!(
            "flash.read_ns = {read} is above flash.program_ns = {program}: no flash reads a page more slowly than it programs it"
        ))
    }

    /// Keys whose values have no effect beside those of other keys, and what they need. They are no errors, since a grid may set one
    /// and vary the other.
    pub fn keys_without_effect(&self) -> Vec<(&'static str, &'static str)> {
        let idle = MAY_BE_IDLE
            .iter()
            .filter(|key| (key.is_set)(self) && !(key.has_effect)(self));
        idle.map(|key| (key.path, key.needs)).collect()
    }
}

/// A key whose value may have no effect.
struct MayBeIdle {
    path: &'static str,
    is_set: fn(&DeviceConfig) -> bool,
    has_effect: fn(&DeviceConfig) -> bool,
    /// What it needs for an effect.
    needs: &'static str,
}

const MAY_BE_IDLE: [MayBeIdle; 10] = [
    MayBeIdle {
        path: "timing.cache_busy_ns",
        is_set: |device| device.timing.cache_busy_ns > 0,
        has_effect: |device| device.timing.cache_read || device.timing.cache_program,
        needs: "timing.cache_read or timing.cache_program",
    },
    MayBeIdle {
        path: "timing.suspend_ns",
        is_set: |device| device.timing.suspend_ns > 0,
        has_effect: |device| {
            let erases_as_programs = device.timing.erase_suspend_ns.is_none();
            suspends_programs(device) || (erases_as_programs && suspends_erases(device))
        },
        needs: SUSPENSIONS,
    },
    MayBeIdle {
        path: "timing.resume_ns",
        is_set: |device| device.timing.resume_ns > 0,
        has_effect: suspends,
        needs: SUSPENSIONS,
    },
    MayBeIdle {
        path: "timing.suspend_least_ns",
        is_set: |device| device.timing.suspend_least_ns > 0,
        has_effect: suspends,
        needs: SUSPENSIONS,
    },
    MayBeIdle {
        path: "timing.resume_to_suspend_ns",
        is_set: |device| device.timing.resume_to_suspend_ns > 0,
        has_effect: suspends,
        needs: SUSPENSIONS,
    },
    MayBeIdle {
        path: "timing.erase_suspend_ns",
        is_set: |device| device.timing.erase_suspend_ns.is_some(),
        has_effect: suspends_erases,
        needs: SUSPENSIONS,
    },
    MayBeIdle {
        path: "firmware.die_by_lpn",
        is_set: |device| device.firmware.die_by_lpn,
        has_effect: |device| device.geometry.groups() > 1,
        needs: "geometry.superblock_dies below the number of dies",
    },
    MayBeIdle {
        path: "flash.slc_program_ns",
        is_set: |device| {
            let Flash {
                slc_read_ns,
                slc_program_ns,
                slc_endurance,
                ..
            } = device.flash;
            let defaults = (
                Flash::SLC_READ_NS,
                Flash::SLC_PROGRAM_NS,
                Flash::SLC_ENDURANCE,
            );
            (slc_read_ns, slc_program_ns, slc_endurance) != defaults
        },
        has_effect: has_slc_cache,
        needs: SLC_CACHE,
    },
    MayBeIdle {
        path: "firmware.slc_fold_free",
        is_set: |device| device.firmware.slc_fold_free != Config::default().slc_fold_free,
        has_effect: has_slc_cache,
        needs: SLC_CACHE,
    },
    MayBeIdle {
        path: "firmware.slc_fold_garbage",
        is_set: |device| device.firmware.slc_fold_garbage != Config::default().slc_fold_garbage,
        has_effect: has_slc_cache,
        needs: SLC_CACHE,
    },
];

const SLC_CACHE: &str = "firmware.slc_share or firmware.slc_dynamic above 0";

fn has_slc_cache(device: &DeviceConfig) -> bool {
    device.firmware.slc_share > 0.0 || device.firmware.slc_dynamic > 0.0
}

const SUSPENSIONS: &str = "timing.suspensions or timing.erase_suspensions above 0";

fn suspends_programs(device: &DeviceConfig) -> bool {
    device.timing.suspensions > 0
}

/// Erases have the limits of programs unless they have their own.
fn suspends_erases(device: &DeviceConfig) -> bool {
    let timing = &device.timing;
    timing.erase_suspensions.unwrap_or(timing.suspensions) > 0
}

fn suspends(device: &DeviceConfig) -> bool {
    suspends_programs(device) || suspends_erases(device)
}

fn problem(path: &str, text: &str) -> KeyProblem {
    KeyProblem {
        path: path.into(),
        text: text.into(),
        meant: None,
    }
}

impl DeviceConfig {
    /// Error rates that contradict each other, or are not used.
    fn contradictions_of_errors(&self) -> Option<KeyProblem> {
        let (path, text) =
            if self.timing.engine == TimingEngine::Published && self.errors != Errors::default() {
                let text = "the keys of [errors] are used by timing.engine = \"nand\" alone";
                ("errors", text.into())
            } else {
                self.errors.contradiction()?
            };
        Some(KeyProblem {
            path: path.into(),
            text,
            meant: None,
        })
    }

    /// Lists of times that do not match the bits of a cell.
    fn times_of_word_lines(&self) -> Vec<KeyProblem> {
        let WordLine { bits, one_shot, .. } = self.geometry.word_line();
        if self.timing.two_step {
            return self.times_of_two_steps();
        }

        if bits == 1 {
            // Page types have no cells in common: any number of them.
            return Vec::new();
        }

        let mut wrong = Vec::new();
        let [reads, programs] =
            [self.flash.read_ns, self.flash.program_ns].map(|times| times.times().len());
        for (path, count) in [("flash.read_ns", reads), ("flash.program_ns", programs)] {
            let text = if count == 1 {
                continue;
            } else if path == "flash.program_ns" && one_shot {
                format!(
                    "flash.program_ns has {count} times: with geometry.one_shot one operation programs a whole word line, so it has one. \
                     Set geometry.one_shot = false if pages are programmed one after the other"
                )
            } else if count as u32 != bits {
                format!("{path} has {count} times: geometry.cell_bits = {bits} needs one or {bits}")
            } else {
                continue;
            };
            wrong.push(problem(path, &text));
        }
        wrong
    }
}

impl DeviceConfig {
    /// What programs in two steps need.
    fn times_of_two_steps(&self) -> Vec<KeyProblem> {
        let WordLine { bits, one_shot, .. } = self.geometry.word_line();
        let mut wrong = Vec::new();
        if bits == 1 || !one_shot {
            wrong.push(problem(
                "timing.two_step",
                "timing.two_step needs geometry.cell_bits above 1 and geometry.one_shot = true: each step programs all pages of a word line",
            ));
        }

        if !self.firmware.power_loss_protection {
            wrong.push(problem(
                "timing.two_step",
                "timing.two_step needs firmware.power_loss_protection = true: otherwise a write would wait until the next word line of its block is written, by others",
            ));
        }

        if self.flash.program_ns.times().len() != 2 {
            wrong.push(problem(
                "flash.program_ns",
                "flash.program_ns needs two times with timing.two_step: of the coarse step and of the fine one",
            ));
        }

        let reads = self.flash.read_ns.times().len();
        if reads != 1 && reads as u32 != bits {
            wrong.push(problem(
                "flash.read_ns",
                &format!(
                    "flash.read_ns has {reads} times: geometry.cell_bits = {bits} needs one or {bits}"
                ),
            ));
        }
        wrong
    }
}

/// All problems in one error: a sentence if there is one, else a line each.
pub(crate) fn listed(
    wrong: &[KeyProblem],
    line: &dyn Fn(&str) -> Option<usize>,
) -> DeviceConfigError {
    let sentence = |problem: &KeyProblem| match line(&problem.path) {
        Some(line) => format!("line {line}: {}", problem.text),
        None => problem.text.clone(),
    };
    DeviceConfigError(match wrong {
        [one] => sentence(one),
        several => {
            let mut text = format!("{} things are wrong:", several.len());
            let mut several: Vec<&KeyProblem> = several.iter().collect();

            // In file order; problems without a line come last.
            several.sort_by_key(|problem| line(&problem.path).unwrap_or(usize::MAX));
            for problem in several {
                text.push_str(&format!("\n  {}", sentence(problem)));
            }
            text
        }
    })
}
