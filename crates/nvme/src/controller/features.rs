//! Features (Base 2.0 §5.27): settings of a host, which last until its controller is reset.
//!
//! Invariant: no value is saved; Error Recovery is per namespace, all others are per controller.
//! Absent: their effects, except temperature warnings.

use super::namespaces::Namespaces;
use super::portals::Transport;
use super::{COPY_FORMAT_NAMESPACES, IO_QUEUES_MAX};
use crate::spec::NSID_ALL;
use crate::spec::command::{FeatureCdw10, Sqe, TemperatureCdw11};
use crate::spec::identify::OAES_NAMESPACES;
use crate::spec::identify::oaes;
use crate::spec::log::features;
use crate::spec::opcode::admin;
use crate::spec::status::Status;
use std::collections::BTreeMap;

pub(crate) mod fid {
    pub(crate) const ARBITRATION: u8 = 0x01;
    pub(crate) const POWER: u8 = 0x02;
    pub(crate) const TEMPERATURE: u8 = 0x04;
    pub(crate) const ERROR_RECOVERY: u8 = 0x05;
    pub(crate) const WRITE_CACHE: u8 = 0x06;
    pub(crate) const QUEUES: u8 = 0x07;
    pub(crate) const WRITE_ATOMICITY: u8 = 0x0a;
    pub(crate) const EVENTS: u8 = 0x0b;
    pub(crate) const KEEP_ALIVE: u8 = 0x0f;
    pub(crate) const HOST_BEHAVIOR: u8 = 0x16;
    pub(crate) const HOST_ID: u8 = 0x81;
    pub(crate) const NOTIFICATION_MASK: u8 = 0x82;
    pub(crate) const PERSISTENCE: u8 = 0x83;
    /// Vendor: docs/nvme-vendor.md.
    pub(crate) const HOLDS_OR_STOPS: u8 = 0xc0;
}

/// Data size of Host Behavior Support.
pub(crate) const HOST_BEHAVIOR_BYTES: u32 = 512;
/// Offset of CDFE, 2 bytes: the Copy descriptor formats that the host has enabled.
pub(crate) const COPY_FORMATS_AT: usize = 4;
/// Granularity of keep-alive times: KAS, in milliseconds.
pub(super) const KEEP_ALIVE_STEP_MS: u32 = 1000;
/// Error Recovery (DULBE): errors for reads of deallocated blocks, which are not supported.
const DEALLOCATED_BLOCK_ERROR: u32 = 1 << 16;
/// Default warning temperature in kelvin: WCTEMP.
pub(super) const WARNING_TEMPERATURE_K: u16 = 343;

/// A granted keep-alive time: rounded up to the granularity in Identify; 0 is none.
pub(super) fn keep_alive_granted(ms: u32) -> u32 {
    ms.div_ceil(KEEP_ALIVE_STEP_MS)
        .min(u32::MAX / KEEP_ALIVE_STEP_MS)
        * KEEP_ALIVE_STEP_MS
}

/// Context for setting a feature.
pub(super) struct Setting<'a> {
    /// All namespaces of the subsystem.
    pub namespaces: &'a Namespaces,
    /// Returns true if the host sees a namespace.
    pub sees: &'a dyn Fn(u32) -> bool,
    pub(crate) keep_alive_ms: &'a mut u32,
    /// True if there has been an I/O queue since the last reset.
    pub(crate) queues_made: bool,
}

pub(super) struct Features {
    values: BTreeMap<u8, u32>,
    defaults: BTreeMap<u8, u32>,
    /// Over and under thresholds of the composite temperature, in kelvin.
    over: u16,
    under: u16,
    /// Error Recovery, for namespaces where it was set.
    error_recovery: BTreeMap<u32, u32>,
    host_behavior: [u8; HOST_BEHAVIOR_BYTES as usize],
}

impl Features {
    pub(super) fn new(volatile_cache: bool, transport: Transport) -> Self {
        let queues = u32::from(IO_QUEUES_MAX - 1);

        let mut defaults = BTreeMap::from([
            // No burst limit.
            (fid::ARBITRATION, 7),
            (fid::POWER, 0),
            (fid::TEMPERATURE, WARNING_TEMPERATURE_K.into()),
            (fid::ERROR_RECOVERY, 0),
            // Submission queues in the lower half, completion queues in the upper, both 0's based.
            (fid::QUEUES, queues | queues << 16),
            (fid::WRITE_ATOMICITY, 0),
            (fid::EVENTS, 0),
        ]);

        if volatile_cache {
            defaults.insert(fid::WRITE_CACHE, 1);
        }

        if transport == Transport::Fabrics {
            defaults.insert(fid::KEEP_ALIVE, 0);
        }

        // Defaults, to which a reset returns, are kept beside the current values: Get Features may
        // request either.
        let values = defaults.clone();
        let (over, under) = (WARNING_TEMPERATURE_K, 0);
        Self {
            values,
            defaults,
            over,
            under,
            error_recovery: BTreeMap::new(),
            host_behavior: [0; 512],
        }
    }

    /// A missing feature counts as off: for example, without a volatile cache there is none to
    /// switch.
    fn value(&self, fid: u8) -> u32 {
        self.values.get(&fid).copied().unwrap_or(0)
    }
    pub(super) fn cache_enabled(&self) -> bool {
        self.value(fid::WRITE_CACHE) & 1 == 1
    }
    /// SMART warnings for which the host has enabled events.
    pub(super) fn smart_events(&self) -> u8 {
        self.value(fid::EVENTS) as u8
    }
    /// Returns true if the host has enabled events for changed namespaces.
    pub(super) fn namespace_events(&self) -> bool {
        self.value(fid::EVENTS) & OAES_NAMESPACES != 0
    }
    /// Returns true if the host has enabled events for changes of a portal.
    pub(super) fn wants_ana_events(&self) -> bool {
        self.value(fid::EVENTS) & oaes::ANA_CHANGE != 0
    }
    /// Maximum I/O queues of the host.
    pub(super) fn queues(&self) -> u16 {
        (self.value(fid::QUEUES) as u16).saturating_add(1)
    }
    /// Returns true if this temperature, in kelvin, crosses a threshold.
    pub(super) fn warns_at(&self, temperature: u16) -> bool {
        temperature >= self.over || temperature <= self.under
    }
    /// Copy descriptor formats that the host has enabled, one bit each; format 0 always is.
    pub(super) fn copy_formats(&self) -> u16 {
        1 | u16::from_le_bytes([
            self.host_behavior[COPY_FORMATS_AT],
            self.host_behavior[COPY_FORMATS_AT + 1],
        ])
    }

    /// Data size of Get or Set of a feature.
    pub(super) fn data_bytes(sqe: &Sqe) -> u32 {
        match FeatureCdw10::from_bits(sqe.cdw10).fid() {
            fid::HOST_BEHAVIOR => HOST_BEHAVIOR_BYTES,
            // Read-only, and only in its 16-byte form: EXHID.
            fid::HOST_ID if sqe.head().opcode() == admin::GET_FEATURES && sqe.cdw11 & 1 == 1 => 16,
            _ => 0,
        }
    }

    /// The log page of supported features, and the scope of each.
    pub(super) fn supported(&self) -> Vec<u8> {
        let mut page = vec![0; 1024];
        let mut known = vec![fid::HOST_BEHAVIOR];
        known.extend(self.values.keys());
        // Reservations are for network hosts.
        if self.values.contains_key(&fid::KEEP_ALIVE) {
            let of_reservations = [
                fid::HOST_ID,
                fid::NOTIFICATION_MASK,
                fid::PERSISTENCE,
                fid::HOLDS_OR_STOPS,
            ];
            known.extend(of_reservations);
        }

        for fid in known {
            let scope = match fid {
                fid::ERROR_RECOVERY
                | fid::NOTIFICATION_MASK
                | fid::PERSISTENCE
                | fid::HOLDS_OR_STOPS => features::NAMESPACE,
                _ => features::CONTROLLER,
            };
            let at = usize::from(fid) * 4;
            page[at..at + 4].copy_from_slice(&(features::SUPPORTED | scope).to_le_bytes());
        }
        page
    }

    /// The value of a feature, of the kind selected (SEL).
    pub(super) fn get(
        &self,
        sqe: &Sqe,
        sees: impl Fn(u32) -> bool,
        keep_alive_ms: u32,
        out: &mut Vec<u8>,
    ) -> Result<u64, Status> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if cdw10.fid() == fid::HOST_BEHAVIOR {
            out.extend_from_slice(&self.host_behavior);
            return Ok(0);
        }

        let default = *self
            .defaults
            .get(&cdw10.fid())
            .ok_or(Status::INVALID_FIELD)?;

        // Three features are not a single value of the controller, and are stored elsewhere.
        let (now, default) = match cdw10.fid() {
            fid::TEMPERATURE => self.threshold(sqe)?,
            fid::ERROR_RECOVERY => {
                if !sees(sqe.nsid) {
                    return Err(Status::INVALID_NAMESPACE);
                }
                (
                    self.error_recovery
                        .get(&sqe.nsid)
                        .copied()
                        .unwrap_or(default),
                    default,
                )
            }
            fid::KEEP_ALIVE => (keep_alive_ms, default),
            fid => (self.value(fid), default),
        };

        match cdw10.sel() {
            0 => Ok(now.into()),
            // No values are saved, so "saved" is the default.
            1 | 2 => Ok(default.into()),
            // Changeable, not saveable; namespace specific, in bit 1.
            3 => Ok(1 << 2 | u64::from(cdw10.fid() == fid::ERROR_RECOVERY) << 1),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// The current and the default value of the threshold that a command selects. Only the
    /// composite temperature exists.
    fn threshold(&self, sqe: &Sqe) -> Result<(u32, u32), Status> {
        let cdw11 = TemperatureCdw11::from_bits(sqe.cdw11);
        match (cdw11.tmpsel(), cdw11.thsel()) {
            (0, 0) => Ok((self.over.into(), WARNING_TEMPERATURE_K.into())),
            (0, 1) => Ok((self.under.into(), 0)),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn set_threshold(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let cdw11 = TemperatureCdw11::from_bits(sqe.cdw11);
        // The composite temperature, or all sensors.
        match (cdw11.tmpsel(), cdw11.thsel()) {
            (0 | 0xf, 0) => self.over = cdw11.tmpth(),
            (0 | 0xf, 1) => self.under = cdw11.tmpth(),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    /// Changes a feature, if it exists and the value is valid.
    pub(super) fn set(&mut self, sqe: &Sqe, with: Setting<'_>, data: &[u8]) -> Result<u64, Status> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if cdw10.sv() {
            return Err(Status::NOT_SAVEABLE);
        }
        if cdw10.fid() != fid::HOST_BEHAVIOR && !self.values.contains_key(&cdw10.fid()) {
            return Err(Status::INVALID_FIELD);
        }

        // A controller-wide feature cannot be set for one namespace.
        if sqe.nsid != 0 && sqe.nsid != NSID_ALL {
            if !(with.sees)(sqe.nsid) {
                return Err(Status::INVALID_NAMESPACE);
            }
            if cdw10.fid() != fid::ERROR_RECOVERY {
                return Err(Status::NOT_NAMESPACE_SPECIFIC);
            }
        }

        let value = sqe.cdw11;
        match cdw10.fid() {
            fid::HOST_BEHAVIOR => {
                let data: [u8; HOST_BEHAVIOR_BYTES as usize] =
                    data.try_into().map_err(|_| Status::SGL_LENGTH)?;
                let formats =
                    u16::from_le_bytes([data[COPY_FORMATS_AT], data[COPY_FORMATS_AT + 1]]);
                if formats & !(1 << COPY_FORMAT_NAMESPACES) != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                self.host_behavior = data;
            }
            fid::QUEUES => {
                // The number of queues is fixed once the first has been created.
                if with.queues_made {
                    return Err(Status::SEQUENCE);
                }

                // The specification excludes this number.
                if value & 0xffff == 0xffff || value >> 16 == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }

                // A host that requests too many gets the maximum, and reads the number granted.
                let granted = |asked: u32| asked.min(u32::from(IO_QUEUES_MAX - 1));
                let granted = granted(value & 0xffff) | granted(value >> 16) << 16;
                self.values.insert(fid::QUEUES, granted);
                return Ok(granted.into());
            }
            fid::TEMPERATURE => self.set_threshold(sqe)?,
            fid::ERROR_RECOVERY => match sqe.nsid {
                _ if value & DEALLOCATED_BLOCK_ERROR != 0 => return Err(Status::INVALID_FIELD),
                0 => return Err(Status::INVALID_NAMESPACE),
                NSID_ALL => {
                    let all = with.namespaces.all().into_iter();
                    self.error_recovery = all.map(|namespace| (namespace.nsid, value)).collect()
                }
                nsid => drop(self.error_recovery.insert(nsid, value)),
            },
            fid::KEEP_ALIVE => *with.keep_alive_ms = keep_alive_granted(value),
            // There is only one power state.
            fid::POWER if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            fid => drop(self.values.insert(fid, value)),
        }
        Ok(0)
    }
}
