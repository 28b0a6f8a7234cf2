//! Job files of fio: every option of fio is simulated, left out and named, or refused with its
//! line; stating a default of fio changes nothing.
//!
//! `fio/options.txt` has the options of fio 3.33 with their defaults, as printed by fio.

use remap_ssd_sim::workload::{ContentModel, FioJob, FioJobError};
use std::collections::BTreeMap;

struct FioOption {
    names: Vec<&'static str>,
    default: Option<&'static str>,
}

fn options() -> Vec<FioOption> {
    let lines = include_str!("fio/options.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            let [name, alias, kind, default] = fields[..] else {
                panic!("four fields: {line}");
            };
            FioOption {
                names: [name, alias]
                    .into_iter()
                    .filter(|name| !name.is_empty())
                    .collect(),
                // A switch without a default is off.
                default: match (kind, default) {
                    ("flag", "") => Some("0"),
                    (_, "") => None,
                    (_, default) => Some(default),
                },
            }
        })
        .collect()
}

fn read(text: &str) -> Result<FioJob, String> {
    text.parse().map_err(|error: FioJobError| error.to_string())
}

/// A job without the list of options left out.
fn load(job: &FioJob) -> FioJob {
    FioJob {
        ignored: Vec::new(),
        ..job.clone()
    }
}

// The first is fio's behaviour for an empty job.
const JOBS: [&str; 6] = [
    "[j]\n",
    "[j]\nrw=randwrite\n",
    "[j]\nrw=randrw\nbs=8k\nioengine=libaio\niodepth=8\n",
    "[j]\nrw=randwrite\ndedupe_percentage=30\n",
    "[j]\nrw=write\nzero_buffers\nio_size=1m\n",
    "[j]\nrw=randread\nrandom_distribution=zipf:1.1\nioengine=io_uring\nnumjobs=4\nnumber_ios=99\n",
];

#[test]
fn to_say_what_is_the_default_of_fio_changes_nothing() {
    assert!(options().len() > 200);
    let mut said = 0;
    for text in JOBS {
        let job = load(&read(text).expect(text));
        for option in options() {
            let Some(default) = option.default else {
                continue;
            };
            // Stated first, so that the job's own options come after it.
            for name in option.names {
                let with = text.replacen("[j]\n", &format!("[j]\n{name}={default}\n"), 1);
                let again = read(&with).unwrap_or_else(|error| panic!("{name}={default}: {error}"));
                assert_eq!(load(&again), job, "{with}");
                said += 1;
            }
        }
    }
    assert!(said > 700, "{said}");
}

#[test]
fn no_option_of_fio_is_dropped_without_a_word() {
    let text = "[j]\nrw=randwrite\nioengine=libaio\niodepth=3\n";
    let job = read(text).expect("a job");
    let mut ends = BTreeMap::from([("refused", 0), ("named", 0), ("simulated", 0)]);

    for option in options() {
        for value in ["2", "8k", "33", "other"] {
            let is_default = option.default == Some(value);
            for name in &option.names {
                let with = format!("{text}{name}={value}\n");
                let end = match read(&with) {
                    Err(error) => {
                        let place = format!("line 5: {name}={value}: ");
                        assert!(error.starts_with(&place), "{with}{error}");
                        "refused"
                    }
                    Ok(again) if again.ignored.iter().any(|left| left == name) => {
                        assert_eq!(load(&again), load(&job), "{with}");
                        "named"
                    }
                    Ok(again) => {
                        // `loops` has an effect only with an amount to multiply.
                        let counts = load(&again) != load(&job) || ["loops"].contains(name);
                        let is_mix = name.starts_with("rwmix") || *name == "dedupe_percentage";
                        assert!(counts || is_mix || is_default, "{with}");
                        "simulated"
                    }
                };
                *ends.get_mut(end).expect("one of three") += 1;
            }
        }
    }
    assert!(ends.values().all(|count| *count > 20), "{ends:?}");

    // An option that fio does not have is refused, too.
    let error = read("[j]\nrw=read\nbsz=8k\n").unwrap_err();
    assert!(
        error.starts_with("line 3: bsz=8k: it is no option"),
        "{error}"
    );
}

#[test]
fn a_job_is_the_workload_that_fio_would_do() {
    let job = read(
        "; a comment\n[global]\nioengine=libaio\nbs=4k,4k # pages\ndirect\n\n[hot]\nrw=randwrite\n\
         random_distribution=zipf:1.1\nnumjobs=4\niodepth=8\nnumber_ios=1000\n",
    )
    .unwrap();

    assert_eq!(job.workload.to_string(), "zipfwrite:1.1");
    assert_eq!(job.content, ContentModel::Unique);
    // Each of the four processes has a depth of 8 and issues 1,000 requests.
    assert_eq!((job.queue_depth, job.pages), (32, Some(4000)));
    assert_eq!(job.ignored, ["direct"]);
}

#[test]
fn what_is_not_said_is_as_fio_has_it() {
    let job = read("[a]\n").unwrap();
    assert_eq!(
        job.workload.to_string(),
        read("[a]\nrw=read\n").unwrap().workload.to_string()
    );
    assert_eq!(job.queue_depth, 1);

    let job = read("[a]\nreadwrite=rw\nio_size=1m\n").unwrap();
    assert_eq!(job.workload.to_string(), "seqrw:50");
    assert_eq!((job.queue_depth, job.pages), (1, Some(256)));

    // The last value counts, of jobs and of `[global]`.
    let job = read("[global]\nrw=write\nrwmixwrite=10\n[a]\nrw=randrw\n").unwrap();
    assert_eq!(job.workload.to_string(), "randrw:90");
}

// fio(1): "Note that increasing iodepth beyond 1 will not affect synchronous ioengines".
#[test]
fn a_synchronous_engine_has_one_request_in_flight() {
    for (engine, depth) in [
        ("", 1),
        ("ioengine=psync\n", 1),
        ("ioengine=mmap\n", 1),
        ("ioengine=libaio\n", 32),
        ("ioengine=io_uring\n", 32),
    ] {
        let job = read(&format!("[j]\nrw=randwrite\n{engine}iodepth=32\n")).expect(engine);
        assert_eq!(job.queue_depth, depth, "{engine}");
        let told = job.ignored.iter().any(|name| name.starts_with("iodepth"));
        assert_eq!(told, depth == 1, "{engine}");
    }
}

// Observed in the output of fio 3.33: `zero_buffers`, `buffer_pattern`, and
// `buffer_compress_percentage=100` make one page 256 times; a share of duplicates takes precedence.
#[test]
fn contents_are_those_that_fio_writes() {
    let same = ContentModel::Repeat {
        duplicate_share: 1.0,
    };
    let third = ContentModel::Repeat {
        duplicate_share: 0.3,
    };
    for (lines, content) in [
        ("zero_buffers\n", same),
        ("zero_buffers=0\n", ContentModel::Unique),
        ("zero_buffers=1\nscramble_buffers=0\n", same),
        ("buffer_pattern=0xdeadbeef\n", same),
        ("buffer_compress_percentage=100\n", same),
        ("buffer_compress_percentage=50\n", ContentModel::Unique),
        ("scramble_buffers=0\nrefill_buffers\n", ContentModel::Unique),
        ("zero_buffers\ndedupe_percentage=30\n", third),
        ("dedupe_percentage=30\ndedupe_mode=repeat\n", third),
    ] {
        let job = read(&format!("[j]\nrw=randwrite\n{lines}")).expect(lines);
        assert_eq!(job.content, content, "{lines}");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_line() {
    for (text, reason) in [
        ("", "no job"),
        ("[global]\nrw=read\n", "no job"),
        ("rw=read\n", "line 1: `rw=read` is before any [job]"),
        ("[a\n", "line 1: `[a` is not [NAME]"),
        ("[a]\nrw=read\n[b]\nrw=trim\n", "2 jobs (a, b)"),
        ("[a]\n[global]\nrw=read\n", "line 2: [global] after [a]"),
        ("include other.fio\n[a]\n", "line 1: `include other.fio`"),
        ("[a]\nrw=randtrim\n", "line 2: rw=randtrim: read, write"),
        ("[a]\nrw=write:8k\n", "line 2: rw=write:8k: what follows"),
        ("[a]\nrw=read:-8k\n", "line 2: rw=read:-8k: what follows"),
        (
            "[a]\nrw=randread:8\n",
            "line 2: rw=randread:8: what follows",
        ),
        (
            "[a]\nzonesize=1m\nzoneskip=4m\n",
            "line 2: zonesize=1m: it is not",
        ),
        ("[a]\nzoneskip=4m\n", "line 2: zoneskip=4m: it is not"),
        ("[a]\nblockalign=512\n", "line 2: blockalign=512: offsets"),
        ("[a]\nba=8k\n", "line 2: ba=8k: offsets"),
        (
            "[a]\ndedupe_mode=working_set\n",
            "line 2: dedupe_mode=working_set: it is",
        ),
        ("[a]\nfsync=1\n", "line 2: fsync=1: it is not"),
        (
            "[a]\nscramble_buffers=0\n",
            "line 2: scramble_buffers=0: buffers",
        ),
        (
            "[a]\nbuffer_pattern='file'\n",
            "line 2: buffer_pattern='file': a",
        ),
        (
            "[a]\nbs=8k\nbuffer_pattern=0xabcdef\n",
            "line 3: buffer_pattern",
        ),
        ("[a]\nioengine=net\n", "line 2: ioengine=net: engines"),
        ("[a]\nrw=write\nnumjobs=2\n", "line 3: numjobs=2: several"),
        ("[a]\nrw=read\nbs=512\n", "line 3: bs=512: whole pages"),
        (
            "[a]\nbs=4k,8k\n",
            "line 2: bs=4k,8k: reads and writes of one size",
        ),
        (
            "[a]\nbsrange=4k-8k\n",
            "line 2: bsrange=4k-8k: requests of one",
        ),
        ("[a]\nbs=18446744073709551615g\n", "line 2: bs="),
        (
            "[a]\nrate_iops=500\n",
            "line 2: rate_iops=500: it is not simulated",
        ),
        ("[a]\nrwmixread=101\n", "line 2: rwmixread=101: a number"),
        ("[a]\niodepth=0\n", "line 2: iodepth=0: a number"),
        (
            "[a]\niodepth=8\niodepth_low=2\n",
            "line 3: iodepth_low=2: it is",
        ),
        (
            "[a]\nrandom_distribution=pareto:1\n",
            "line 2: random_distribution",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.starts_with(reason), "{text:?}: {error}");
    }
}
