//! Device descriptions: parsed, checked, written. The interface is TOML and JSON, so that Python
//! needs neither types nor rules.
//!
//! Absent: which values are valid (`remap_ssd_device::config`).

use crate::errors::mistake;
use pyo3::prelude::*;
use remap_ssd_device::{DeviceConfig, PRESETS};
use serde_json::json;

/// Checks the text of a device file; returns the full device as TOML and as JSON.
#[pyfunction]
pub(crate) fn config_of_toml(text: &str) -> PyResult<(String, String)> {
    let config = DeviceConfig::from_toml(text).map_err(mistake)?;
    let summary = json!({ "device": config, "addressable_pages": config.addressable_lpns() });
    Ok((config.to_toml(), summary.to_string()))
}

/// The same for a device file's keys and values as JSON.
#[pyfunction]
pub(crate) fn config_of_json(text: &str) -> PyResult<(String, String)> {
    let keys: toml::Table = serde_json::from_str(text).map_err(mistake)?;
    config_of_toml(&keys.to_string())
}

/// A JSON list of the predefined devices: name, description and full configuration of each.
#[pyfunction]
pub(crate) fn presets() -> String {
    let one = |preset: &remap_ssd_device::Preset| json!({ "name": preset.name, "about": preset.about, "assumed": preset.assumed, "checked": preset.checked, "device": preset.config() });
    PRESETS
        .iter()
        .map(one)
        .collect::<serde_json::Value>()
        .to_string()
}
