//! Commands of hosts: their results, and refusals.

use crate::kit::specified::{cns, lid, status};
use crate::namespaces::host::{FORMATS, Host, PAGE, Store, device, new_namespace, subsystem};
use remap_ssd_nvme::controller::{AdminOutcome, NSID_MAX, Rights, Subsystem};
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::management::{NewNamespace, controller_list};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use std::sync::Arc;

/// No namespaces.
const NONE: [u32; 0] = [];

fn empty() -> (Arc<Subsystem>, Host) {
    let subsystem = Arc::new(subsystem(device(32 << 20), &Store::default()));
    let host = Host::of(&subsystem, "a");
    (subsystem, host)
}

#[test]
fn a_namespace_is_there_for_whom_it_was_attached_to_and_only_as_long_as_it_was() {
    let (subsystem, a) = empty();
    let b = Host::of(&subsystem, "b");
    let free = a.free_bytes();
    assert_eq!((a.seen(), free), (vec![], 32 << 20));

    let nsid = a.create(100, 0).expect("there is room");
    assert_eq!(nsid, 1);
    assert_eq!(a.free_bytes(), free - 100 * PAGE as u64);
    assert_eq!(a.seen(), NONE);
    assert_eq!(a.numbers(cns::ALLOCATED_NAMESPACES), [1]);
    assert!(a.identify(cns::ALLOCATED_NAMESPACE, 1).is_ok());
    assert_eq!(a.write(1, 0, 1, &[1; PAGE]), Err(Status::INVALID_NAMESPACE));

    assert_eq!(a.attach(1, &[&b], true), Ok(()));
    assert_eq!((a.seen(), b.seen()), (vec![], vec![1]));
    assert_eq!(b.write(1, 0, 1, &[1; PAGE]), Ok(()));
    assert_eq!(a.read(1, 0, 1), Err(Status::INVALID_NAMESPACE));

    // Another controller of the same host sees it as well.
    let again = Host::of(&subsystem, "b");
    assert_eq!(again.read(1, 0, 1), Ok(vec![1; PAGE]));
    let list = b.identify(cns::ATTACHED_CONTROLLERS, 1).expect("a list");
    let numbers = [b.0.cntlid(), again.0.cntlid()];
    assert_eq!(controller_list(&list).as_deref(), Some(&numbers[..]));
    let list = a.identify(cns::CONTROLLERS, 0).expect("a list");
    assert_eq!(controller_list(&list).map(|all| all.len()), Some(3));

    assert_eq!(a.attach(1, &[&b], false), Ok(()));
    assert_eq!(b.seen(), NONE);
    assert_eq!(b.read(1, 0, 1), Err(Status::INVALID_NAMESPACE));

    assert_eq!(a.delete(1), Ok(()));
    assert_eq!(
        (a.free_bytes(), a.delete(1)),
        (free, Err(Status::INVALID_NAMESPACE))
    );
    assert_eq!(a.numbers(cns::ALLOCATED_NAMESPACES), NONE);
}

#[test]
fn the_next_namespace_in_its_place_is_another_one_and_reads_as_zeroes() {
    let (_, host) = empty();
    let mut names = Vec::new();
    for format in [0, 1, 0] {
        let nsid = host.create(64, format).expect("there is room");
        assert_eq!(nsid, 1);
        host.attach(1, &[&host], true).expect("it is there");
        let about = host.namespace(1).expect("it is seen");
        names.push(about.nguid);

        let blocks = (64 * PAGE / FORMATS[format]) as u64;
        assert_eq!((about.flbas, { about.nsze }), (format as u8, blocks));
        for slba in [0, blocks - 1] {
            let zeroes = vec![0; FORMATS[format]];
            assert_eq!(host.read(1, slba, 1), Ok(zeroes));
            let ones = vec![1; FORMATS[format]];
            assert_eq!(host.write(1, slba, 1, &ones), Ok(()));
        }
        assert_eq!(host.read(1, blocks, 1), Err(Status::LBA_RANGE));
        host.delete(1).expect("it is there");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (subsystem, host) = empty();
    let pages = (host.free_bytes() / PAGE as u64) as u32;
    assert_eq!(host.create(pages + 1, 0), Err(Status::NAMESPACE_CAPACITY));
    assert_eq!(host.create(0, 0), Err(Status::INVALID_FIELD));

    let with = |change: &dyn Fn(&mut NewNamespace)| {
        let mut new = new_namespace(8, 0);
        change(&mut new);
        host.create_as(&new)
    };
    assert_eq!(with(&|new| new.ncap = 7), Err(status::THIN_PROVISIONING));
    assert_eq!(with(&|new| new.flbas = 2), Err(Status::INVALID_FORMAT));
    assert_eq!(with(&|new| new.flbas = 1 << 4), Err(Status::INVALID_FORMAT));
    assert_eq!(with(&|new| new.flbas = 1 << 5), Err(Status::INVALID_FORMAT));
    assert_eq!(with(&|new| new.dps = 1), Err(Status::INVALID_FORMAT));
    assert_eq!(with(&|new| new.anagrpid = 2), Err(status::ANA_GROUP));
    assert_eq!(with(&|new| new.nvmsetid = 1), Err(Status::INVALID_FIELD));
    let unaligned = |new: &mut NewNamespace| {
        (new.flbas, new.nsze, new.ncap) = (1, 9, 9);
    };
    assert_eq!(with(&unaligned), Err(Status::INVALID_FIELD));
    let huge = |new: &mut NewNamespace| {
        (new.nsze, new.ncap) = (u64::MAX, u64::MAX);
    };
    assert_eq!(with(&huge), Err(Status::NAMESPACE_CAPACITY));
    let mut other = entry(admin::NAMESPACE_MANAGEMENT, 0);
    other.cdw10 = 2;
    assert_eq!(host.admin(other, &[]).map(drop), Err(Status::INVALID_FIELD));
    assert_eq!(host.delete(0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(host.numbers(cns::ALLOCATED_NAMESPACES), NONE);

    // Attaching.
    host.create(8, 0).expect("there is room");
    assert_eq!(
        host.attach(2, &[&host], true),
        Err(Status::INVALID_NAMESPACE)
    );
    assert_eq!(host.attach(1, &[&host], false), Err(status::NOT_ATTACHED));
    assert_eq!(
        host.attach_list(1, &[999], true),
        Err(status::CONTROLLER_LIST)
    );
    assert_eq!(host.attach_list(1, &[], true), Err(status::CONTROLLER_LIST));
    assert_eq!(host.attach(1, &[&host], true), Ok(()));
    assert_eq!(
        host.attach(1, &[&host], true),
        Err(status::ALREADY_ATTACHED)
    );
    let b = Host::of(&subsystem, "b");
    assert_eq!(
        host.attach(1, &[&host, &b], true),
        Err(status::ALREADY_ATTACHED)
    );
    assert_eq!(b.seen(), NONE);

    // A host without all rights cannot manage namespaces, not even its own.
    b.0.grant(Rights::parse("all:rw,2:ro").expect("rights"));
    assert_eq!(b.create(8, 0), Err(Status::OPERATION_DENIED));
    assert_eq!(b.delete(1), Err(Status::OPERATION_DENIED));
    assert_eq!(b.attach(1, &[&b], true), Err(Status::OPERATION_DENIED));
    b.0.grant(Rights::parse("1:ro").expect("rights"));
    assert_eq!(b.format(1, 1), Err(Status::INVALID_NAMESPACE));
    host.attach(1, &[&b], true).expect("it is there");
    assert_eq!(b.format(1, 1), Err(Status::WRITE_PROTECTED));
    assert_eq!(host.namespace(1).map(|about| about.flbas), Ok(0));
}

#[test]
fn all_numbers_can_be_used_and_all_deleted_at_once() {
    let (_, host) = empty();
    for nsid in 1..=NSID_MAX {
        assert_eq!(host.create(1, 0), Ok(nsid));
    }
    assert_eq!(host.create(1, 0), Err(status::NAMESPACE_NUMBERS));
    host.delete(77).expect("it is there");
    assert_eq!(host.create(1, 0), Ok(77));
    assert_eq!(host.delete(u32::MAX), Ok(()));
    assert_eq!(host.free_bytes(), 32 << 20);
}

#[test]
fn pages_between_others_are_used_again() {
    let (_, host) = empty();
    let quarter = (host.free_bytes() / PAGE as u64 / 4) as u32;
    for _ in 0..4 {
        host.create(quarter, 0).expect("there is room");
    }
    // Two that are not adjacent have no room for one of twice the size.
    host.delete(1).expect("it is there");
    host.delete(3).expect("it is there");
    assert_eq!(host.create(2 * quarter, 0), Err(Status::NAMESPACE_CAPACITY));
    host.delete(2).expect("it is there");
    assert_eq!(host.create(3 * quarter, 0), Ok(1));
}

#[test]
fn blocks_of_another_size_are_empty_ones() {
    let (_, host) = empty();
    host.create(64, 0).expect("there is room");
    host.attach(1, &[&host], true).expect("it is there");
    let name = host.namespace(1).expect("it is seen").nguid;
    host.write(1, 63, 1, &[7; PAGE]).expect("served");

    assert_eq!(host.format(1, 1), Ok(()));
    let about = host.namespace(1).expect("it is seen");
    assert_eq!((about.flbas, { about.nsze }, about.nguid), (1, 512, name));
    assert_eq!(host.read(1, 504, 8), Ok(vec![0; PAGE]));
    assert_eq!(host.write(1, 511, 1, &[8; 512]), Ok(()));
    assert_eq!(host.format(1, 0), Ok(()));
    assert_eq!(host.read(1, 63, 1), Ok(vec![0; PAGE]));
}

/// Registers a host, and reserves a namespace for it.
fn reserve(host: &Host, nsid: u32) {
    for (opcode, cdw10, keys) in [
        (io::RESERVATION_REGISTER, 0, [0u64, 1]),
        (io::RESERVATION_ACQUIRE, 1 << 8, [1, 0]),
    ] {
        let sqe = Sqe {
            cdw10,
            ..entry(opcode, nsid)
        };
        let data = keys.map(u64::to_le_bytes).concat();
        let standing = host.0.standing(None);
        let done = host.0.reservation(&standing, &sqe, &data, &mut Vec::new());
        assert_eq!(done, AdminOutcome::Done(Status::SUCCESS, 0));
    }
}

#[test]
fn what_another_host_has_reserved_is_not_deleted_and_the_next_of_its_number_is_free() {
    let (subsystem, a) = empty();
    let b = Host::of(&subsystem, "b");
    a.create(8, 0).expect("there is room");
    a.create(8, 0).expect("there is room");
    a.attach(2, &[&a, &b], true).expect("it is there");
    reserve(&b, 2);
    a.write(2, 0, 1, &[1; PAGE]).expect_err("it is another's");

    assert_eq!(a.delete(2), Err(Status::RESERVATION_CONFLICT));
    assert_eq!(a.delete(u32::MAX), Err(Status::RESERVATION_CONFLICT));
    assert_eq!(a.format(2, 1), Err(Status::RESERVATION_CONFLICT));
    assert_eq!(a.numbers(cns::ALLOCATED_NAMESPACES), [1, 2]);

    assert_eq!(b.delete(2), Ok(()));
    assert_eq!(a.create(8, 0), Ok(2));
    a.attach(2, &[&a], true).expect("it is there");
    assert_eq!(a.write(2, 0, 1, &[1; PAGE]), Ok(()));
    // It inherits neither the generation nor the persist flag.
    let inherited = subsystem.reservations_of(2);
    assert_eq!((inherited.generation, inherited.persists), (0, false));
}

#[test]
fn hosts_hear_of_what_changes_for_them_and_of_nothing_else() {
    let (subsystem, a) = empty();
    let b = Host::of(&subsystem, "b");
    // The whole log page of changed namespaces.
    let heard = |host: &Host| {
        let sqe = Sqe {
            cdw10: u32::from(lid::CHANGED_NAMESPACES) | 1023 << 16,
            ..entry(admin::GET_LOG_PAGE, u32::MAX)
        };
        let (_, page) = host.admin(sqe, &[]).expect("a page");
        let numbers = page.as_chunks::<4>().0.iter().copied();
        let numbers = numbers.map(u32::from_le_bytes);
        numbers.take_while(|nsid| *nsid > 0).collect::<Vec<_>>()
    };

    a.create(8, 0).expect("there is room");
    assert_eq!((heard(&a), heard(&b)), (vec![], vec![]));
    a.attach(1, &[&b], true).expect("it is there");
    assert_eq!((heard(&a), heard(&b)), (vec![], vec![1]));
    b.format(1, 1).expect("it is there");
    assert_eq!((heard(&a), heard(&b)), (vec![], vec![1]));
    a.attach(1, &[&b], false).expect("it is there");
    assert_eq!((heard(&a), heard(&b)), (vec![], vec![1]));
    a.attach(1, &[&b], true).expect("it is there");
    heard(&b);
    a.delete(1).expect("it is there");
    assert_eq!((heard(&a), heard(&b)), (vec![], vec![1]));
}

#[test]
fn a_namespace_does_not_keep_the_names_of_hosts_without_end() {
    let (subsystem, host) = empty();
    host.create(8, 0).expect("there is room");
    for number in 0..1024 {
        let other = Host::of(&subsystem, &format!("{number}"));
        assert_eq!(host.attach(1, &[&other], true), Ok(()));
    }
    assert_eq!(host.attach(1, &[&host], true), Err(status::CONTROLLER_LIST));
    assert_eq!(host.seen(), NONE);

    // After one is detached, there is room for another.
    let first = Host::of(&subsystem, "0");
    assert_eq!(host.attach(1, &[&first], false), Ok(()));
    assert_eq!(host.attach(1, &[&host], true), Ok(()));
}
