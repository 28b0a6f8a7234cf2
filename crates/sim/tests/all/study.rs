//! Whole runs by their descriptions.

use remap_ssd_device::{DeviceConfig, Lpn, SchemeKind};
use remap_ssd_sim::aging::FillSpec;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::study::{
    Length, Lifetimes, NewDevice, RunResult, RunSpec, Stage, Start, StudyError,
};
use std::ops::ControlFlow;

/// A short run on a small device.
fn spec(scheme: SchemeKind, workload: &str) -> RunSpec {
    let preset = DeviceConfig::preset("fast21-32g").unwrap();
    let mut config = preset.scale(1.0 / 256.0).unwrap();
    config.firmware.scheme = scheme;
    let mut spec = RunSpec::new(config, workload.parse().unwrap());
    spec.length = Length::Pages(5000);
    spec
}

fn new_device(spec: &mut RunSpec) -> &mut NewDevice {
    match &mut spec.start {
        Start::New(new) => new,
        Start::Image(_) => panic!("no new device"),
    }
}

fn perform(spec: &RunSpec) -> Result<RunResult, StudyError> {
    spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()))
}

#[test]
fn a_run_has_its_stages_in_order_and_can_be_stopped_in_each() {
    let run = spec(SchemeKind::RemapSsd, "randwrite");
    let name = |stage| match stage {
        Stage::Recovering => "recovering",
        Stage::Aging => "aging",
        Stage::Saving => "saving",
        Stage::Measuring(_) => "measuring",
    };

    let mut stages = Vec::new();
    let mut follow = |stage| {
        stages.push(name(stage));
        ControlFlow::Continue(())
    };
    run.perform(&Cores::default(), &mut follow).unwrap();
    stages.dedup();
    assert_eq!(stages, ["aging", "measuring"]);

    for last in stages {
        let mut follow = |stage| {
            if name(stage) == last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let stopped = run.perform(&Cores::default(), &mut follow);
        let error = stopped.unwrap_err();
        assert!(matches!(error, StudyError::Failed(_)), "{error}");
        assert!(error.to_string().contains("stopped"), "{error}");
    }
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_runs() {
    let homeless = spec(SchemeKind::WalSsd, "randwrite");
    let mut never = |_| panic!("nothing runs");
    let error = homeless.perform(&Cores::default(), &mut never).unwrap_err();
    assert!(matches!(&error, StudyError::Impossible(text) if text.contains("names none")));
    perform(&spec(SchemeKind::WalSsd, "journal")).unwrap();

    let mut timeless = spec(SchemeKind::None, "randwrite");
    timeless.arrivals = Some(Arrivals::OWN);
    let error = timeless.check_requests().unwrap_err();
    assert!(error.to_string().contains("no times of its own"), "{error}");

    let tiny = spec(SchemeKind::None, "ycsb,span=0.001");
    assert!(matches!(
        tiny.check_requests(),
        Err(StudyError::Impossible(_))
    ));
}

#[test]
fn an_ordered_fill_writes_the_addressable_pages_once_with_the_contents_that_it_is_given() {
    let mut run = spec(SchemeKind::RemapSsd, "randwrite,span=0.5");
    let addressable = new_device(&mut run).config.addressable_lpns();
    let aging = new_device(&mut run).aging.as_mut().unwrap();
    (aging.fill, aging.content) = (FillSpec::Ordered, Some("unique".parse().unwrap()));

    let staged = run.stage(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(staged.aged.unwrap().filled, addressable);
    let stats = staged.device.ftl().stats();
    assert_eq!((stats.host_programs, stats.remaps), (addressable, 0));

    let aging = new_device(&mut run).aging.as_mut().unwrap();
    aging.content = Some("plain:0.5".parse().unwrap());
    let staged = run.stage(&mut |_| ControlFlow::Continue(())).unwrap();
    let stats = staged.device.ftl().stats();
    assert_eq!(stats.host_programs + stats.remaps, addressable);
    assert!(stats.remaps > addressable / 3, "{}", stats.remaps);
}

#[test]
fn a_device_filled_whole_has_the_pages_that_the_run_addresses_and_no_others() {
    let mut run = spec(SchemeKind::None, "randwrite,span=0.75");
    let aging = new_device(&mut run).aging.as_mut().unwrap();
    aging.fill = FillSpec::Whole;
    let addressable = new_device(&mut run).config.addressable_lpns();

    let staged = run.stage(&mut |_| ControlFlow::Continue(())).unwrap();
    let pages = run.requests.pages(addressable);
    let is_mapped = |lpn: &u64| staged.device.ftl().is_mapped(Lpn(*lpn as u32));
    assert!(pages > 1000 && (0..pages).all(|lpn| is_mapped(&lpn)));
    assert_eq!((pages..addressable).find(is_mapped), None);
}

#[test]
fn lifetimes_of_the_run_leave_out_the_pages_that_died_during_aging() {
    let tracked = |lifetimes| {
        let mut run = spec(SchemeKind::RemapSsd, "randwrite");
        run.lifetimes = lifetimes;
        perform(&run).unwrap().summary.survival
    };

    assert!(tracked(Lifetimes::Untracked).is_empty());
    let deaths = |lifetimes| -> u64 { tracked(lifetimes).iter().map(|class| class.died).sum() };
    let (all, of_run) = (deaths(Lifetimes::OfAll), deaths(Lifetimes::OfRun));
    assert!(of_run > 0 && all > of_run, "{all} and {of_run}");
}
