//! The vendor commands by which a file system lists the pages of its files.

use super::*;

#[test]
fn the_file_map_lists_what_was_written_until_it_is_reset() {
    let mut config =
        DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
    (config.firmware.fs_files, config.firmware.fs_blocks) = (2, 5);
    let rig = Rig::with(Device::format(config).expect("possible"), &[]);
    let mut client = rig.client();
    let mut write = |inode, page, lba: u32| {
        let mut sqe = entry(io::FS_WRITE, 1);
        (sqe.cdw10, sqe.cdw13, sqe.cdw14) = (lba, inode, page);
        let data = bytes(lba.into(), 4096);
        let call = Call::sending(sqe, &data);
        client
            .queue(|queue| Ok(queue.calls(&[call])?.remove(0)))
            .expect("answered")
    };
    for (inode, page, lba) in [(7, 0, 100), (9, 3, 101), (7, 1, 102), (7, 0, 103)] {
        assert!(write(inode, page, lba).status.is_success());
    }
    let full = write(11, 0, 104);
    assert_eq!(
        (full.status, full.result),
        (Status::NOT_LISTED, 1),
        "a third file"
    );
    assert!(write(9, 4, 105).status.is_success());
    let full = write(9, 5, 106);
    assert_eq!(
        (full.status, full.result),
        (Status::NOT_LISTED, 2),
        "a sixth page"
    );
    assert!(
        client.read(106, 1).expect("served") == bytes(106, 4096),
        "the data are written"
    );
    let list = |client: &mut Client, inode: Option<u32>| {
        let mut sqe = entry(io::FS_MAP, 1);
        (sqe.cdw10, sqe.cdw12, sqe.cdw13) = (15, u32::from(inode.is_none()), inode.unwrap_or(0));
        let call = Call::receiving(sqe, 64);
        let data = client
            .queue(|queue| queue.call("map", &call))
            .expect("served")
            .data;
        let words: Vec<u32> = data
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        words[2..2 + 2 * words[0] as usize]
            .as_chunks::<2>()
            .0
            .to_vec()
    };
    assert_eq!(list(&mut client, Some(7)), [[0, 100], [1, 102], [0, 103]]);
    assert_eq!(list(&mut client, Some(9)), [[3, 101], [4, 105]]);
    assert_eq!(list(&mut client, None), [[7, 0], [9, 0]]);
    let reset = Call::new(entry(io::FS_RESET, 1));
    client
        .queue(|queue| queue.call("reset", &reset))
        .expect("served");
    assert!(list(&mut client, Some(7)).is_empty());
    drop(client);
    rig.stop();
    let rig = Rig::new();
    let none = rig.client().queue(|queue| queue.call("reset", &reset));
    assert_eq!(status(none), Status::NO_FILE_MAP);
}
