//! Every key of a device at the ends of its range and beyond, alone and in pairs: refused with a
//! message, or the device works.

use crate::kit::numbers::Numbers;
use crate::kit::{self, read, tiny};
use remap_ssd_device::config::TimingEngine;
use remap_ssd_device::keys::{DeviceKey, KEYS, KeyKind};
use remap_ssd_device::{Device, DeviceConfig, Lpn, Setting};
use remap_ssd_ftl::{Refusal, SchemeKind};
use remap_ssd_media::{ContentMode, Payload};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A device that needs more memory than this is checked and not created.
const BYTES_MAX: u64 = 64 << 20;

/// The result of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Refused,
    TooLarge,
    Works,
}

/// Keys that can be set on a command line.
fn keys() -> impl Iterator<Item = &'static DeviceKey> {
    KEYS.iter()
        .filter(|key| !["preset", "scale"].contains(&key.path))
}

/// Values to try for a key: the ends of its range and their neighbours, the limits of number types,
/// and text that is no number.
fn texts(key: &DeviceKey) -> Vec<String> {
    let mut texts: Vec<String> = [
        "0",
        "1",
        "2",
        "3",
        "-1",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "0.5",
        "1e300",
        "NaN",
        "inf",
        "",
        "text",
        "true",
        "false",
    ]
    .map(str::to_owned)
    .to_vec();
    match key.kind {
        KeyKind::Integer(least, most) => {
            let around = [least.saturating_sub(1), least, least + 1, most - 1, most];
            texts.extend(around.map(|value| value.to_string()));
            texts.push(most.saturating_add(1).to_string());
        }
        KeyKind::Number(range) => {
            texts.extend([range.least, range.most].map(|value| value.to_string()));
        }
        KeyKind::Choice(names) => texts.extend(names().into_iter().map(str::to_owned)),
        KeyKind::CellTimes => texts.extend(
            [
                "1/2/3/4",
                "1/2/3/4/5",
                "2/1",
                "30us/1ms",
                "1/",
                "1000000000000/1000000000000",
            ]
            .map(str::to_owned),
        ),
        KeyKind::Rates => {
            texts.extend(["0.01/0.02/1", "0.02/0.01", "0.5/1.5", "1e-9/"].map(str::to_owned));
        }
        KeyKind::Flag | KeyKind::Text | KeyKind::Factor => {}
    }
    texts
}

fn is_sentence(text: &str) {
    assert!(text.len() > 10 && text.contains(' '), "no reason: '{text}'");
}

/// Sets values as a command line does, checks the configuration, and uses the resulting device.
fn set(base: &DeviceConfig, texts: &[String]) -> Became {
    let mut settings = Vec::new();
    for text in texts {
        match text.parse::<Setting>() {
            Ok(setting) => settings.push(setting),
            Err(why) => {
                is_sentence(&why.to_string());
                return Became::Refused;
            }
        }
    }

    let config = match base.with(&settings) {
        Ok(config) => config,
        Err(why) => {
            is_sentence(&why.to_string());
            return Became::Refused;
        }
    };
    // Every command with a scale does this too, whole or not.
    if let Err(why) = config.clone().scale(0.5) {
        is_sentence(&why.to_string());
    }
    if let Err(why) = config.check() {
        is_sentence(&why.to_string());
        return Became::Refused;
    }

    let nvram = config.firmware.nvram_words(&config.geometry) as u64 * 8;
    let flash = u64::from(config.geometry.pages()) * 64;
    if nvram + flash > BYTES_MAX {
        return Became::TooLarge;
    }
    use_device(config);
    Became::Works
}

/// Writes some pages, cuts the power, and reads them.
fn use_device(config: DeviceConfig) {
    let (mode, lpns) = (config.content, config.firmware.lpns.min(12));
    let is_durable = config.firmware.scheme.is_durable();
    let mut device = Device::format(config).expect("it has been checked");
    let mut now = 0;
    for round in 0..3 {
        for lpn in 0..lpns {
            let content = u64::from(100 * round + lpn / 2 + 1);
            let page = kit::page(content);
            let payload = match mode {
                ContentMode::Bytes => Payload::Bytes(&page),
                _ => Payload::Identity(content),
            };
            let completion = device.write(now, Lpn(lpn), &payload);
            // A device whose blocks endure one cycle ends here, as expected.
            if completion.result == Err(Refusal::ReadOnly) {
                return;
            }
            assert_eq!(completion.result, Ok(()));
            now = completion.done_at;
        }
    }

    let (mut device, _) = device.power_cycle().expect("it recovers");
    if mode == ContentMode::Bytes && is_durable {
        for lpn in 0..lpns {
            assert_eq!(read(&mut device, lpn), u64::from(200 + lpn / 2 + 1));
        }
    }
}

/// Runs it, and reports a setting that caused a panic.
fn tried(base: &DeviceConfig, texts: &[String], wrong: &mut Vec<String>) -> Option<Became> {
    match catch_unwind(AssertUnwindSafe(|| set(base, texts))) {
        Ok(became) => Some(became),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            wrong.push(format!("{} with {texts:?}: {text}", base.firmware.scheme));
            None
        }
    }
}

#[test]
fn every_key_at_the_ends_of_its_range_is_refused_with_a_sentence_or_works() {
    let (mut wrong, mut works, mut refused) = (Vec::new(), 0, 0);
    for scheme in SchemeKind::ALL {
        let base = tiny(scheme, true, 80, 24);
        for key in keys() {
            for text in texts(key) {
                let setting = [format!("{}={text}", key.path)];
                match tried(&base, &setting, &mut wrong) {
                    Some(Became::Works) => works += 1,
                    Some(Became::Refused) => refused += 1,
                    Some(Became::TooLarge) | None => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(works > 1000 && refused > 1000, "{works} {refused}");
}

// Of the pairs of values of these keys, every seventeenth.
#[test]
fn keys_of_the_model_whose_dies_choose_are_refused_with_a_sentence_or_work_in_pairs() {
    let (mut wrong, mut works) = (Vec::new(), 0);
    let mut base = tiny(SchemeKind::FLog, true, 80, 24);
    base.background.lookup_stalls_dies = false;
    base.timing.engine = TimingEngine::Nand;
    base.timing.suspensions = 2;
    let of_time: Vec<_> = keys()
        .filter(|key| ["flash", "timing", "errors", "nvram", "link"].contains(&key.table()))
        .flat_map(|key| {
            texts(key)
                .into_iter()
                .map(|text| format!("{}={text}", key.path))
        })
        .filter(|text| text.parse::<Setting>().is_ok())
        .collect();
    for (index, first) in of_time.iter().enumerate() {
        for second in of_time[index..].iter().step_by(17) {
            let pair = [first.clone(), second.clone()];
            works += usize::from(tried(&base, &pair, &mut wrong) == Some(Became::Works));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(works > 1000, "{works}");
}

#[test]
fn a_key_of_the_flash_and_one_of_the_firmware_together_are_refused_with_a_sentence_or_work() {
    let mut random = Numbers(11);
    let geometry: Vec<_> = keys().filter(|key| key.table() == "geometry").collect();
    let firmware: Vec<_> = keys()
        .filter(|key| key.table().starts_with("firmware"))
        .collect();
    let mut draw = |keys: &[&DeviceKey]| {
        let key = keys[random.below(keys.len() as u64) as usize];
        let mut texts = texts(key);
        texts.extend((2..24).map(|value| value.to_string()));
        let text = &texts[random.below(texts.len() as u64) as usize];
        format!("{}={text}", key.path)
    };

    let (mut wrong, mut works) = (Vec::new(), 0);
    for scheme in SchemeKind::ALL {
        let base = tiny(scheme, true, 80, 24);
        for _ in 0..400 {
            let pair = [draw(&geometry), draw(&firmware)];
            works += u32::from(tried(&base, &pair, &mut wrong) == Some(Became::Works));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(works > 100, "{works}");
}

#[test]
fn segments_of_no_bytes_are_refused_where_there_are_segments_whole_or_scaled() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::RemapSsdX,
        SchemeKind::RemapSsdLh,
    ] {
        let setting = "firmware.segment_bytes=0"
            .parse::<Setting>()
            .expect("a key");
        let mut preset = DeviceConfig::preset("fast21-32g").expect("a preset");
        preset.firmware.scheme = scheme;
        let config = preset.with(&[setting]).expect("a device");
        for factor in [1.0, 1.0 / 16.0, 1.0 / 512.0] {
            let error = config.clone().scale(factor).expect_err("no segment fits");
            let error = error.to_string();
            assert!(
                error.starts_with("segment_bytes = 0 must be"),
                "{scheme} at {factor}: {error}"
            );
        }
    }
}

/// All of NVRAM is allocated, so a process with a larger one might run out of memory.
#[test]
fn logs_larger_than_the_flash_are_refused_with_what_to_change() {
    let (mut logs, mut flash) = (0, 0);
    for scheme in SchemeKind::ALL {
        let base = tiny(scheme, true, 80, 24);
        flash = u64::from(base.geometry.pages()) * 4096;
        let nvram =
            |config: &DeviceConfig| 8 * config.firmware.nvram_words(&config.geometry) as u64;

        // A slot takes 16 bytes in each of the two halves.
        for (key, least) in [
            ("log_bytes", flash),
            ("log_bytes", 1 << 44),
            ("dealloc_slots", flash / 32),
            ("dealloc_slots", u32::MAX.into()),
        ] {
            let setting = format!("firmware.{key}={least}");
            let setting = setting.parse::<Setting>().expect("a key");
            let config = base.with(&[setting]).expect("a number in its range");
            let Err(error) = config.check() else {
                assert!(nvram(&config) <= flash, "{scheme}: {key} = {least}");
                continue;
            };
            // A log on flash is refused for lack of flash.
            let error = error.to_string();
            let names_nvram = error.contains("bytes of NVRAM");
            logs += u32::from(names_nvram);
            assert!(
                error.contains(key) || scheme.keeps_entries_on_flash() && !names_nvram,
                "{scheme}: {error}"
            );
        }

        // The largest one within the limit works.
        let room = (flash - nvram(&base)) / 32 + u64::from(base.firmware.dealloc_slots);
        let setting = format!("firmware.dealloc_slots={}", room - 2);
        let config = base.with(&[setting.parse::<Setting>().expect("a key")]);
        let config = config.expect("a number in its range");
        assert!(nvram(&config) > flash - 128, "{scheme}");
        use_device(config);
    }
    assert!(logs > 30, "{logs} of {flash} bytes");
}
