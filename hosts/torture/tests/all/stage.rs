//! End to end: real commands on a real kernel. A test without FUSE, root or loop devices prints
//! that and is skipped.

use remap_ssd_torture::{
    Campaign, Code, DiskGeometry, FileSystem, Recording, RecordingSpec, TortureError, id, load,
    record, require, save,
};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
const LIMIT: Duration = Duration::from_secs(60);

/// The recording of a run; none if a requirement is missing.
fn recorded(fs: Option<&str>, workload: &str) -> Option<Recording> {
    let fs = fs.map(|name| FileSystem {
        name: name.into(),
        ..FileSystem::default()
    });
    recorded_on(fs, workload)
}

fn recorded_on(fs: Option<FileSystem>, workload: &str) -> Option<Recording> {
    let shape = DiskGeometry {
        block_bytes: 512,
        blocks: 65_536,
    };
    let run = RecordingSpec {
        shape,
        fs,
        nvme_tcp: false,
        workload: workload.into(),
        limit: None,
        writeback: None,
        seed: 1,
        faults: Vec::new(),
    };
    let missing = run.fs.as_ref().and_then(|fs| require(&fs.name).err());
    match missing.map_or_else(|| record(&run, "", &STOP), Err) {
        Ok(recording) => Some(recording),
        Err(TortureError::Missing(what)) => {
            println!("skipped: {what}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Cuts of a recording until one fails.
fn first_failure(recording: &Recording, check: &str, rounds: u64) -> Option<Code> {
    let mut campaign = Campaign::new(recording, check, LIMIT, &STOP).unwrap();
    let whole = campaign.whole().unwrap();
    assert!(
        whole.passed(),
        "without a cut: {}\n{}",
        whole.finding,
        whole.output
    );
    let cuts: Vec<_> = (0..rounds).map(|round| campaign.cut(7, round)).collect();
    let cut = cuts
        .into_iter()
        .find(|cut| !campaign.try_cut(cut).unwrap().passed())?;
    Some(Code {
        recording: id(recording).unwrap(),
        cut,
        atomic: None,
        firmware: None,
    })
}

const FILES: &str = "for n in 1 2 3 4 5 6 7 8; do head -c 3000 /dev/zero | tr '\\0' $n SYNC; echo $n > $MARKS; done";
// Every acknowledged file is present and complete.
const CHECK: &str = "for n in $(cat $MARKS); do
    [ \"$(tr -d $n < $DIR/f$n | wc -c) $(wc -c < $DIR/f$n)\" = '0 3000' ] || { echo file $n is lost; exit 1; }
done";

#[test]
fn files_that_were_synced_survive_on_ext4() {
    let workload = FILES.replace("SYNC", "| dd of=$DIR/f$n conv=fsync status=none");
    let Some(recording) = recorded(Some("ext4"), &workload) else {
        return;
    };
    assert_eq!(recording.marks.len(), 8);
    assert_eq!(first_failure(&recording, CHECK, 40), None);
}

#[test]
fn files_that_were_not_synced_are_lost_and_the_code_replays_it_from_a_saved_recording() {
    let workload = FILES.replace("SYNC", "> $DIR/f$n") + "; sync -f $DIR";
    let Some(recording) = recorded(Some("ext4"), &workload) else {
        return;
    };
    let code = first_failure(&recording, CHECK, 40).expect("nothing was synced");

    let folder = tempfile::tempdir().unwrap();
    save(&recording, &folder.path().join("r")).unwrap();
    let loaded = load(&folder.path().join("r")).unwrap();
    assert_eq!(id(&loaded).unwrap(), code.recording);
    let mut campaign = Campaign::new(&loaded, CHECK, LIMIT, &STOP).unwrap();
    let again: Code = code.to_string().parse().unwrap();
    let verdict = campaign.try_cut(&again.cut).unwrap();
    assert!(
        !verdict.passed() && verdict.output.contains("is lost"),
        "{}",
        verdict.output
    );
}

// Two blocks written without a flush between them: the second may survive without the first, and
// the failure needs one lost block.
#[test]
fn a_disk_without_a_file_system_shows_writes_out_of_order() {
    let write = |block, bytes| {
        format!("printf {bytes} | dd of=$FILE seek={block} bs=4096 conv=notrunc,SYNC status=none; ")
    };
    let workload = write(3, "first") + &write(90, "second");
    let check = "[ -z \"$(dd if=$FILE skip=90 bs=4096 count=1 status=none | grep -a second)\" ] ||
        dd if=$FILE skip=3 bs=4096 count=1 status=none | grep -aq first";

    let Some(recording) = recorded(None, &workload.replace(",SYNC", "")) else {
        return;
    };
    let code = first_failure(&recording, check, 200).expect("nothing orders the writes");
    let mut campaign = Campaign::new(&recording, check, LIMIT, &STOP).unwrap();
    let verdict = campaign.try_cut(&code.cut).unwrap();
    let smallest = campaign.shrink(&code.cut, verdict, LIMIT).unwrap();
    assert_eq!(
        (
            smallest.lost.len(),
            smallest.lost[0].block,
            smallest.finished
        ),
        (1, 3 * 8, true)
    );

    let Some(recording) = recorded(None, &workload.replace(",SYNC", ",fsync")) else {
        return;
    };
    assert_eq!(first_failure(&recording, check, 200), None);
}

#[test]
fn a_check_that_hangs_has_failed() {
    let Some(recording) = recorded(Some("ext4"), "true > $DIR/f") else {
        return;
    };
    let mut campaign = Campaign::new(
        &recording,
        "exec 3< $DIR/f; sleep 1000",
        Duration::from_millis(300),
        &STOP,
    )
    .unwrap();
    let verdict = campaign.whole().unwrap();
    assert_eq!(verdict.finding.to_string(), "the check did not end in time");
}

#[test]
fn a_workload_that_fails_says_what_it_wrote() {
    let shape = DiskGeometry {
        block_bytes: 4096,
        blocks: 1024,
    };
    let run = RecordingSpec {
        shape,
        fs: None,
        nvme_tcp: false,
        workload: "echo words; exit 3".into(),
        limit: None,
        writeback: None,
        seed: 1,
        faults: Vec::new(),
    };
    match record(&run, "", &STOP) {
        Err(TortureError::Workload { ended, output }) => {
            assert_eq!(
                (ended.as_str(), output.as_str()),
                ("ended with exit code 3", "words")
            );
        }
        Err(TortureError::Missing(what)) => println!("skipped: {what}"),
        other => panic!("{:?}", other.err()),
    }
}

// The first check leaves a process with its own mount namespace, in its copy of the folder. The
// file system of the first cut stays active with it, and has data to write.
#[test]
fn a_file_system_that_goes_on_elsewhere_does_not_write_to_the_disk_of_the_next_cut() {
    let mut namespaces = std::process::Command::new("unshare");
    namespaces.args(["-m", "true"]);
    if !namespaces.status().is_ok_and(|status| status.success()) {
        println!("skipped: unshare does not work here");
        return;
    }
    let Some(recording) = recorded(Some("ext4"), "true > $DIR/f") else {
        return;
    };

    let folder = tempfile::tempdir().unwrap();
    let check = "cd HERE
        if [ ! -e there ]; then
            mkfifo go come; touch there
            setsid unshare -m sh -c 'cd $DIR; echo > HERE/come; read line < HERE/go
                echo of the first cut > late; sync -f late; echo > HERE/come' > log 2>&1 < /dev/null &
            read line < come
        else
            echo > go; read line < come
            ! dd if=$FILE bs=1M status=none | grep -a 'of the first cut'
        fi";
    let check = check.replace("HERE", folder.path().to_str().unwrap());
    let mut campaign = Campaign::new(&recording, &check, LIMIT, &STOP).unwrap();
    for cut in ["first", "second"] {
        let verdict = campaign.whole().unwrap();
        assert!(
            verdict.passed(),
            "{cut}: {}\n{}",
            verdict.finding,
            verdict.output
        );
    }
}

#[test]
fn workload_and_check_run_with_the_options_of_the_user_for_mkfs_and_mount() {
    let fs = FileSystem {
        name: "ext4".into(),
        mkfs_options: "-b 1024 -N 512".into(),
        mount_options: "noatime,commit=77".into(),
    };
    let command = "grep \" $DIR \" /proc/mounts | grep noatime | grep commit=77 &&
        [ \"$(stat -f -c '%S %c' $DIR)\" = '1024 512' ]";
    let Some(recording) = recorded_on(Some(fs), command) else {
        return;
    };
    let mut campaign = Campaign::new(&recording, command, LIMIT, &STOP).unwrap();
    let verdict = campaign.whole().unwrap();
    assert!(verdict.passed(), "{}\n{}", verdict.finding, verdict.output);
}
