//! Features (Base 2.0 §5.27): what a host may set, for as long as its controller lives.

use super::IO_QUEUES_MAX;
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::status::Status;
use std::collections::BTreeMap;

mod fid {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
    pub const HOST_BEHAVIOR: u8 = 0x16;
}

/// Bytes that Host Behavior Support moves.
pub(super) const HOST_BEHAVIOR_BYTES: u32 = 512;

/// Values now.
pub(super) struct Features {
    values: BTreeMap<u8, u32>,
    defaults: BTreeMap<u8, u32>,
    host_behavior: [u8; HOST_BEHAVIOR_BYTES as usize],
}

impl Features {
    pub fn new(volatile_cache: bool) -> Self {
        let queues = u32::from(IO_QUEUES_MAX - 1);
        let mut defaults = BTreeMap::from([
            (fid::ARBITRATION, 7),
            (fid::POWER, 0),
            (fid::TEMPERATURE, 0x0157), // 343 K, over the warning threshold
            (fid::ERROR_RECOVERY, 0),
            (fid::QUEUES, queues | queues << 16),
            (fid::WRITE_ATOMICITY, 0),
            (fid::EVENTS, 0),
            (fid::KEEP_ALIVE, 0),
        ]);
        if volatile_cache {
            defaults.insert(fid::WRITE_CACHE, 1);
        }
        Self { values: defaults.clone(), defaults, host_behavior: [0; 512] }
    }

    fn value(&self, fid: u8) -> u32 {
        self.values.get(&fid).copied().unwrap_or(0)
    }
    pub fn cache_enabled(&self) -> bool {
        self.value(fid::WRITE_CACHE) & 1 == 1
    }
    /// Warnings about which the host wants to hear.
    pub fn smart_events(&self) -> u8 {
        self.value(fid::EVENTS) as u8
    }
    /// I/O queues the host may have.
    pub fn queues(&self) -> u16 {
        (self.value(fid::QUEUES) as u16).saturating_add(1)
    }

    /// Bytes that Get or Set of a feature moves.
    pub fn data_bytes(sqe: &Sqe) -> u32 {
        let known = FeatureCdw10::from_bits(sqe.cdw10).fid() == fid::HOST_BEHAVIOR;
        if known { HOST_BEHAVIOR_BYTES } else { 0 }
    }

    /// Get Features.
    pub fn get(&self, sqe: &Sqe, keep_alive_ms: u32, out: &mut Vec<u8>) -> Result<u64, Status> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if cdw10.fid() == fid::HOST_BEHAVIOR {
            out.extend_from_slice(&self.host_behavior);
            return Ok(0);
        }
        let now = *self.values.get(&cdw10.fid()).ok_or(Status::INVALID_FIELD)?;
        match cdw10.sel() {
            0 if cdw10.fid() == fid::KEEP_ALIVE => Ok(keep_alive_ms.into()),
            0 => Ok(now.into()),
            // Nothing is saved, so "saved" is the default.
            1 | 2 => Ok(self.defaults[&cdw10.fid()].into()),
            // Changeable, not saveable, not by namespace.
            3 => Ok(1 << 2),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Set Features.
    pub fn set(&mut self, sqe: &Sqe, keep_alive_ms: &mut u32, data: &[u8]) -> Result<u64, Status> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if cdw10.sv() {
            return Err(Status::NOT_SAVEABLE);
        }
        let value = sqe.cdw11;
        match cdw10.fid() {
            fid::HOST_BEHAVIOR => {
                self.host_behavior = data.try_into().map_err(|_| Status::SGL_LENGTH)?;
                return Ok(0);
            }
            fid::QUEUES => {
                if value & 0xffff == 0xffff || value >> 16 == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                let granted = |asked: u32| asked.min(u32::from(IO_QUEUES_MAX - 1));
                let granted = granted(value & 0xffff) | granted(value >> 16) << 16;
                self.values.insert(fid::QUEUES, granted);
                return Ok(granted.into());
            }
            fid::KEEP_ALIVE => *keep_alive_ms = value,
            fid::POWER if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            fid if self.values.contains_key(&fid) => {
                self.values.insert(fid, value);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(0)
    }
}
