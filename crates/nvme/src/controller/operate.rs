//! Operations on a device in service, for an operator: power cuts, damage to its medium, switching
//! of timing and deduplication.
//!
//! Each operation takes one turn at the device. Invariants: a power cut loses only volatile state,
//! since the device is recovered from its media alone; a device that does not recover is broken for
//! all users. Absent: authorization (`remap-ssd-http`), and the connections that a power cut ends
//! (`tcp::roster`).

use super::controllers::settle_all;
use super::portals::Transport;
use super::subsystem::{Latency, Subsystem};
use super::turn::DeviceTurn;
use remap_ssd_device::{Device, DeviceConfig, Lpn, OpenError};
use remap_ssd_ftl::{RecoveryReport, SchemeKind};
use remap_ssd_media::Ppn;
use std::sync::atomic::Ordering::Relaxed;

/// An operation failed: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OperateError(pub String);

/// Damage that an operator can cause, to test hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Pages of a namespace are unreadable until they are rewritten or their block is erased. Pages that are not mapped, or whose
    /// newest version is in the write buffer, have no flash page: nothing is damaged for them.
    Unreadable {
        /// Number of their namespace.
        nsid: u32,
        /// First logical block, in blocks of the namespace.
        slba: u64,
        /// Number of unreadable blocks.
        count: u32,
    },
    /// A bit of NVRAM flips, until its word is stored again. One flipped bit of a word is
    /// corrected; two are not.
    Flip {
        /// The word of 8 bytes.
        word: usize,
        /// The bit, 0 to 63.
        bit: u32,
    },
    /// All planted faults are removed.
    None,
}

/// The smallest possible device, a placeholder while another one has no power.
const STAND_IN_BYTES: u64 = 16 << 20;

impl Subsystem {
    /// Cuts the power and restores it. Tables in DRAM are lost and rebuilt from flash and NVRAM; a
    /// volatile cache loses the versions drawn from `seed`. Hosts wait until it is over.
    ///
    /// # Errors
    /// The device does not recover, or does not take the cache's survivors. In the first case it
    /// has failed for all users.
    pub fn power_cut(&self, seed: u64) -> Result<RecoveryReport, OperateError> {
        self.power_cut_with(seed, || ())
    }

    /// Like `power_cut`, but all network controllers end at the same instant: none of their
    /// commands has an effect on the recovered device, and their hosts connect again.
    ///
    /// # Errors
    /// As `power_cut`.
    pub fn power_cut_of_all(&self, seed: u64) -> Result<RecoveryReport, OperateError> {
        let mut ended = Vec::new();
        let report = self.power_cut_with(seed, || {
            ended = self.controllers.all();
            ended.retain(|one| one.transport == Transport::Fabrics);
            ended.iter().for_each(|one| one.close());
        });
        settle_all(&self.device, ended.iter().map(|one| &**one));
        report
    }

    fn power_cut_with(
        &self,
        seed: u64,
        in_the_cut: impl FnOnce(),
    ) -> Result<RecoveryReport, OperateError> {
        let error = |error: &dyn std::fmt::Display| OperateError(error.to_string());

        // A placeholder for the device while it has no power. Created before the turn, it keeps no
        // host waiting.
        let config = DeviceConfig::for_service(STAND_IN_BYTES, SchemeKind::BASELINE, false)
            .map_err(|reason| error(&reason))?;
        let stand_in = Device::in_memory(config).map_err(|reason| error(&reason))?;

        // The cut, the recovery and writing the cache's survivors are one turn: no command sees an
        // intermediate state.
        let recovered = self.cut_power(seed, |present, _| {
            let device = std::mem::replace(present, stand_in);
            self.counters.power_cuts.fetch_add(1, Relaxed);

            // In the same turn, so that no command finds the device recovered but the old
            // reservations in force.
            self.reservations.lose_power();
            in_the_cut();

            // Within the turn: the placeholder answers no command.
            let (device, report) = device.power_cycle().inspect_err(|_| self.device.fail())?;
            *present = device;
            Ok::<_, OpenError>(report)
        });
        let recovered = recovered.map_err(|status| {
            OperateError(format!(
                "the device does not take what the cache keeps: {status:?}"
            ))
        })?;

        recovered.map_err(|reason| OperateError(format!("the device does not recover: {reason}")))
    }

    /// Removes all registrations and the reservation of a namespace, whose hosts may never come
    /// back. Returns the number of registrants.
    ///
    /// # Errors
    /// There is no such namespace, or the change could not be saved.
    pub fn release_reservations(&self, nsid: u32) -> Result<usize, OperateError> {
        let namespace = self
            .namespace(nsid)
            .ok_or_else(|| OperateError(format!("there is no namespace {nsid}")))?;
        self.reservations
            .clear(&self.device, &self.namespaces, &namespace)
            .map_err(|_| OperateError("the change could not be kept".into()))
    }

    /// Number of power cuts so far.
    pub fn power_cuts(&self) -> u64 {
        self.counters.power_cuts.load(Relaxed)
    }

    /// Damages the medium. Returns the number of pages or words.
    ///
    /// # Errors
    /// There is no such place.
    pub fn damage(&self, damage: Damage) -> Result<u32, OperateError> {
        // Check before the turn begins: an operator's mistake must not make hosts wait.
        let pages = match damage {
            Damage::Unreadable { nsid, slba, count } => Some(self.pages(nsid, slba, count)?),
            _ => None,
        };

        let mut turn = self.device();

        match damage {
            Damage::Unreadable { .. } => {
                // An unmapped page has no flash page to damage.
                let placed: Vec<Ppn> = pages
                    .into_iter()
                    .flat_map(Lpn::between)
                    .filter_map(|lpn| turn.place(lpn))
                    .collect();

                plant(&mut turn, |faults| faults.read.extend(&placed));
                Ok(placed.len() as u32)
            }
            Damage::Flip { word, bit } => {
                let words = turn.ftl().media().nvram_words();
                if word >= words || bit > 63 {
                    return Err(OperateError(format!(
                        "NVRAM has {words} words of 64 bits: there is no bit {bit} of word {word}"
                    )));
                }

                plant(&mut turn, |faults| {
                    // A second flip of the same bit undoes the first.
                    *faults.flips.entry(word).or_default() ^= 1 << bit;
                });
                Ok(1)
            }
            Damage::None => {
                let faults = turn.ftl().media().faults();
                let planted = faults.read.len() + faults.flips.len();

                plant(&mut turn, |faults| {
                    faults.read.clear();
                    faults.flips.clear();
                });
                Ok(planted as u32)
            }
        }
    }

    /// The device's logical pages that contain blocks of a namespace.
    fn pages(
        &self,
        nsid: u32,
        slba: u64,
        count: u32,
    ) -> Result<std::ops::Range<Lpn>, OperateError> {
        let namespace = self
            .namespace(nsid)
            .ok_or_else(|| OperateError(format!("there is no namespace {nsid}")))?;
        if count == 0 || namespace.blocks(slba, count).is_err() {
            let blocks = namespace.size_blocks();
            return Err(OperateError(format!(
                "namespace {nsid} has {blocks} blocks: {count} from {slba} on are not there"
            )));
        }
        let last = namespace.page_of(slba + u64::from(count) - 1);
        Ok(namespace.page_of(slba)..last.offset(1))
    }

    /// Makes completions due at once, or when the timing model says.
    pub fn set_latency(&self, latency: Latency) {
        // In a turn, so that no command is only partly timed.
        let mut turn = self.device();
        turn.keep_time(latency == Latency::Emulated);
        self.emulated.store(latency == Latency::Emulated, Relaxed);
    }

    /// Switches deduplication of writes off and on again. Data written while it is off are not
    /// found as duplicates later.
    ///
    /// # Errors
    /// The device was created without deduplication.
    pub fn set_dedup(&self, on: bool) -> Result<(), OperateError> {
        let mut turn = self.device();
        if !turn.ftl().deduplicates() {
            return Err(OperateError(
                "the device was made without deduplication (--dedup on)".into(),
            ));
        }
        turn.pause_dedup(!on);
        Ok(())
    }
}

fn plant(turn: &mut DeviceTurn<'_>, change: impl FnOnce(&mut remap_ssd_media::Faults)) {
    turn.untimed(|ftl| ftl.media_mut().plant(change));
}
