//! Information available to a host: Identify, log pages, features, every admin command.

use super::*;

#[test]
fn a_host_finds_its_own_namespaces_by_every_identify_and_no_others() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    let mut guest = Host::of(&rig, GUEST);

    // Every CNS value supported by the controller, by scope. **Add a line here for a new one.**
    let of_namespaces = [
        cns::NAMESPACE,
        cns::NAMESPACE_DESCRIPTORS,
        cns::COMMAND_SET_NAMESPACE,
        cns::INDEPENDENT_NAMESPACE,
        cns::ALLOCATED_NAMESPACE,
        cns::ATTACHED_CONTROLLERS,
    ];
    let lists = [
        cns::ACTIVE_NAMESPACES,
        cns::COMMAND_SET_NAMESPACES,
        cns::ALLOCATED_NAMESPACES,
    ];
    let of_controllers = [
        cns::CONTROLLER,
        cns::COMMAND_SET_CONTROLLER,
        cns::COMMAND_SETS,
        cns::CONTROLLERS,
    ];
    for wanted in 0..=u8::MAX {
        let known = owner.identify(wanted, 1).is_ok();
        let is_listed = of_namespaces.contains(&wanted)
            || lists.contains(&wanted)
            || of_controllers.contains(&wanted);
        assert_eq!(known, is_listed, "CNS {wanted:#04x}");
    }

    for wanted in of_namespaces {
        assert!(owner.identify(wanted, 3).is_ok());
        assert_eq!(guest.identify(wanted, 3), Err(HIDDEN), "CNS {wanted:#04x}");
        assert_eq!(guest.identify(wanted, 4), Err(HIDDEN), "CNS {wanted:#04x}");
        assert!(guest.identify(wanted, 2).is_ok(), "CNS {wanted:#04x}");
    }
    for wanted in lists {
        let list = |host: &mut Host, after| numbers(&host.identify(wanted, after).expect("a list"));
        assert_eq!(list(&mut owner, 0), [1, 2, 3]);
        assert_eq!(list(&mut guest, 0), [1, 2]);
        assert_eq!(list(&mut guest, 1), [2]);
        assert!(list(&mut guest, 2).is_empty());
    }

    // A host without all rights does not learn about other hosts.
    let controllers = |host: &mut Host, wanted| {
        let list = host.identify(wanted, 1).expect("a list");
        controller_list(&list).map(|numbers| numbers.len())
    };
    for wanted in [cns::CONTROLLERS, cns::ATTACHED_CONTROLLERS] {
        assert_eq!(controllers(&mut owner, wanted), Some(2));
        assert_eq!(controllers(&mut guest, wanted), Some(1));
    }

    // Write protected, in both structures that report it.
    assert_eq!((guest.attributes(1), guest.attributes(2)), ([0; 2], [1; 2]));
    assert_eq!(owner.attributes(2), [0; 2]);
    let id = guest.identify(cns::CONTROLLER, 0).expect("a controller");
    let id = Controller::read_from_bytes(&id).expect("its size");
    let oaes = id.oaes;
    assert_eq!(oaes & 1 << 8, 1 << 8, "namespaces may change");
}

#[test]
fn every_log_page_is_shown_or_denied_to_a_host_that_does_not_see_everything() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    let mut guest = Host::of(&rig, GUEST);
    // **Add a line here for a new log page**, which is denied unless `Need::of_log` says otherwise.
    let shown = [
        lid::SUPPORTED,
        lid::ERROR,
        lid::SMART,
        lid::FIRMWARE,
        lid::CHANGED_NAMESPACES,
        lid::EFFECTS,
        lid::FEATURES,
        lid::MANAGEMENT,
        // Limited to visible namespaces, and to own registrations.
        lid::ANA,
        lid::RESERVATION,
    ];
    // Deduplication hits would reveal data of other hosts.
    let denied = [lid::STATISTICS];

    for page in 0..=u8::MAX {
        let (to_owner, to_guest) = (owner.log(page, 64, true), guest.log(page, 64, true));
        let known = shown.contains(&page) || denied.contains(&page);
        assert_eq!(to_owner.is_ok(), known, "log page {page:#04x}");
        let expected = if denied.contains(&page) {
            Some(DENIED)
        } else {
            to_owner.err()
        };
        assert_eq!(to_guest.err(), expected, "log page {page:#04x}");
    }

    // SMART per namespace is not supported: a hidden one is answered like a missing one.
    let smart = |host: &mut Host, nsid| {
        let sqe = Sqe {
            cdw10: u32::from(lid::SMART) | 15 << 16,
            ..entry(admin::GET_LOG_PAGE, nsid)
        };
        host.admin.call(transport(sqe, 64), &[]).cqe.status()
    };
    assert_eq!(smart(&mut guest, 2), Status::INVALID_FIELD);
    assert_eq!(smart(&mut guest, 3), HIDDEN);
    assert_eq!(smart(&mut guest, 4), HIDDEN);
}

#[test]
fn every_admin_command_has_been_thought_about() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    // **Add a line here for a new command**, and decide whether it shows or changes state of other
    // hosts. None of these does, except Identify, Get Log Page, Format (`format.rs`) and
    // namespace management (`namespaces`), which have tests of their own.
    let known = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
        admin::KEEP_ALIVE,
        admin::FORMAT,
        admin::NAMESPACE_MANAGEMENT,
        admin::NAMESPACE_ATTACHMENT,
        admin::FABRICS,
    ];
    for code in (0..=u8::MAX).filter(|code| *code != admin::ASYNC_EVENT) {
        let mut sqe = entry(code, 0);
        // An unknown type of fabrics command.
        if code == admin::FABRICS {
            sqe.nsid = 0xff;
        }
        // These two have data.
        let answer = match code {
            admin::NAMESPACE_MANAGEMENT | admin::NAMESPACE_ATTACHMENT => {
                owner.admin.call(in_capsule(sqe, PAGE as u32), &[0; PAGE])
            }
            _ => owner.admin.call(transport(sqe, PAGE as u32), &[]),
        };
        let is_known = answer.cqe.status() != Status::INVALID_OPCODE;
        assert_eq!(is_known, known.contains(&code), "{code:#04x}");
    }
}

#[test]
fn a_feature_of_a_hidden_namespace_is_neither_read_nor_set() {
    let rig = rig();
    let (mut owner, mut guest) = (Host::of(&rig, OWNER), Host::of(&rig, GUEST));
    for code in [admin::GET_FEATURES, admin::SET_FEATURES] {
        for fid in 0..=u8::MAX {
            let ask = |nsid, host: &mut Host| {
                let sqe = Sqe {
                    cdw10: fid.into(),
                    ..entry(code, nsid)
                };
                if u32::from(fid) == HOST_BEHAVIOR {
                    return Status::SUCCESS;
                }
                host.admin.call(transport(sqe, 0), &[]).cqe.status()
            };
            // As for a namespace that does not exist, for any feature.
            let none = ask(4, &mut owner);
            assert_eq!(ask(3, &mut guest), none, "feature {fid:#04x}, {code:#04x}");
        }
    }
    // Error Recovery belongs to a namespace.
    let sqe = |nsid| Sqe {
        cdw10: 5,
        ..entry(admin::GET_FEATURES, nsid)
    };
    let mut get = |nsid| guest.admin.call(transport(sqe(nsid), 0), &[]).cqe.status();
    assert_eq!((get(2), get(3)), (Status::SUCCESS, HIDDEN));
}
