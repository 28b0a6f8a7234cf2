//! Random commands of two hosts against a model of the contents, with power cuts and restarts.

use crate::kit::numbers::Numbers;
use crate::namespaces::host::{FORMATS, Host, PAGE, Store, device, subsystem};
use remap_ssd_nvme::controller::{CACHE_BYTES_MIN, Subsystem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Expected state of a namespace.
struct Expected {
    pages: u32,
    format: usize,
    seen_by: BTreeSet<usize>,
    /// Durable content, by page.
    held: BTreeMap<u32, u8>,
}

const NAMES: [&str; 2] = ["a", "b"];
const STEPS: usize = 400;

fn hosts(subsystem: &Arc<Subsystem>) -> Vec<Host> {
    NAMES.map(|name| Host::of(subsystem, name)).into()
}

fn check(hosts: &[Host], all: &BTreeMap<u32, Expected>, at: &str) {
    for (index, host) in hosts.iter().enumerate() {
        let seen: Vec<u32> = all
            .iter()
            .filter(|(_, one)| one.seen_by.contains(&index))
            .map(|(nsid, _)| *nsid)
            .collect();
        assert_eq!(host.seen(), seen, "{at}");

        for nsid in seen {
            let one = &all[&nsid];
            let per_page = PAGE / FORMATS[one.format];
            for page in 0..one.pages {
                let slba = u64::from(page) * per_page as u64;
                let read = host.read(nsid, slba, per_page as u32).expect("served");
                let held = one.held.get(&page).copied().unwrap_or(0);
                let is_held = read.iter().all(|byte| *byte == held);
                assert!(is_held, "{at}: namespace {nsid}, page {page}");
            }
        }
    }
}

fn run(seed: u64, cache: bool) {
    let store = Store::default();
    let start = |device| {
        let made = subsystem(device, &store);
        let made = if cache {
            made.with_cache(4096 * CACHE_BYTES_MIN)
        } else {
            made
        };
        let subsystem = Arc::new(made);
        assert_eq!(subsystem.finish_clearing(), Ok(0));
        let hosts = hosts(&subsystem);
        (subsystem, hosts)
    };
    let (mut subsystem, mut hosts) = start(device(16 << 20));
    let mut all: BTreeMap<u32, Expected> = BTreeMap::new();
    let mut numbers = Numbers(seed);

    for step in 0..STEPS {
        let at = format!("seed {seed}, cache {cache}, step {step}");
        let who = numbers.below(2) as usize;
        let nsid = 1 + numbers.below(6) as u32;
        match numbers.below(10) {
            0 | 1 if all.len() < 5 => {
                let (pages, format) = (1 + numbers.below(40) as u32, numbers.below(2) as usize);
                let created = hosts[who].create(pages, format).expect("there is room");
                let free = (1..).find(|nsid| !all.contains_key(nsid));
                assert_eq!(Some(created), free, "{at}");
                let one = Expected {
                    pages,
                    format,
                    seen_by: BTreeSet::new(),
                    held: BTreeMap::new(),
                };
                all.insert(created, one);
            }
            2 => {
                let there = all.remove(&nsid).is_some();
                assert_eq!(hosts[who].delete(nsid).is_ok(), there, "{at}");
            }
            3 => {
                let format = numbers.below(2) as usize;
                let seen = all.get_mut(&nsid).filter(|one| one.seen_by.contains(&who));
                let done = hosts[who].format(nsid, format);
                assert_eq!(done.is_ok(), seen.is_some(), "{at}");
                if let Some(one) = seen {
                    (one.format, one.held) = (format, BTreeMap::new());
                }
            }
            4 | 5 => {
                let attach = numbers.below(3) > 0;
                let done = hosts[who].attach(nsid, &[&hosts[1 - who]], attach);
                let one = all.get_mut(&nsid);
                let changes = one.is_some_and(|one| {
                    if attach {
                        one.seen_by.insert(1 - who)
                    } else {
                        one.seen_by.remove(&(1 - who))
                    }
                });
                assert_eq!(done.is_ok(), changes, "{at}");
            }
            6 if numbers.below(3) == 0 => {
                subsystem.power_cut(seed).expect("it recovers");
                hosts.clear();
                let ended = Arc::into_inner(subsystem).expect("the only reference");
                (subsystem, hosts) = start(ended.into_device().expect("no thread panicked"));
            }
            _ => {
                let Some(one) = all.get_mut(&nsid).filter(|one| one.seen_by.contains(&who)) else {
                    continue;
                };
                let (page, byte) = (numbers.below(one.pages.into()) as u32, 1 + step as u8 % 255);
                let per_page = PAGE / FORMATS[one.format];
                let slba = u64::from(page) * per_page as u64;
                let data = [byte; PAGE];
                let host = &hosts[who];
                host.write(nsid, slba, per_page as u32, &data)
                    .expect("served");
                // Unflushed data may be lost, so flush.
                host.flush(nsid).expect("served");
                one.held.insert(page, byte);
            }
        }
        if step % 20 == 0 {
            check(&hosts, &all, &at);
        }
    }
    check(&hosts, &all, "at the end");
    subsystem.device().ftl().check().expect("consistent");
}

#[test]
fn whatever_two_hosts_do_each_sees_what_it_must() {
    for seed in 0..6 {
        run(seed, false);
        run(seed, true);
    }
}
