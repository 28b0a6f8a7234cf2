//! Bytes of files, and the model of a store's operations on them.

use remap_ssd_store::{FileId, Store};

/// Bytes unique to the tag.
pub fn tagged(tag: u64, bytes: usize) -> Vec<u8> {
    let tag = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    tag.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// The whole contents of a file.
pub fn contents(store: &dyn Store, file: FileId) -> Vec<u8> {
    let mut bytes = vec![1; store.size(file).expect("it is open") as usize];
    assert_eq!(
        store.read(file, 0, &mut bytes).expect("readable"),
        bytes.len()
    );
    bytes
}

/// A write of `data` at `offset`.
pub fn write(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

/// A discard of `count` bytes at `offset`.
pub fn discard(bytes: &mut [u8], offset: usize, count: usize) {
    let end = (offset + count).min(bytes.len());
    if offset < end {
        bytes[offset..end].fill(0);
    }
}
