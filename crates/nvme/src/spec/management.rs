//! Data structures of Namespace Management and Namespace Attachment (Base 2.0 §5.20, §5.21).

use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Values of SEL, bits 3:0 of dword 10.
pub mod sel {
    /// Of Namespace Management: create a namespace; its number is the result.
    pub const CREATE: u8 = 0;
    /// Of Namespace Management: delete one namespace, or all of them.
    pub const DELETE: u8 = 1;
    /// Of Namespace Attachment: attach the namespace to the controllers of the list.
    pub const ATTACH: u8 = 0;
    /// Of Namespace Attachment: detach it.
    pub const DETACH: u8 = 1;
}

/// Size of the data of both commands.
pub const MANAGEMENT_BYTES: usize = 4096;

/// A namespace to be created: fields at the offsets of Identify Namespace (NVM 1.0 §4.1.6).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct NewNamespace {
    pub nsze: u64,
    pub ncap: u64,
    reserved_16: [u8; 10],
    pub flbas: u8,
    reserved_27: [u8; 2],
    pub dps: u8,
    pub(crate) nmic: u8,
    reserved_31: [u8; 61],
    pub anagrpid: u32,
    reserved_96: [u8; 4],
    pub nvmsetid: u16,
    pub(crate) endgid: u16,
    reserved_104: [u8; 3992],
}

const _: () = assert!(size_of::<NewNamespace>() == MANAGEMENT_BYTES);
const _: () = assert!(offset_of!(NewNamespace, flbas) == 26 && offset_of!(NewNamespace, dps) == 29);
const _: () =
    assert!(offset_of!(NewNamespace, anagrpid) == 92 && offset_of!(NewNamespace, nvmsetid) == 100);

/// Maximum numbers in a controller list.
pub(crate) const CONTROLLERS_MAX: usize = MANAGEMENT_BYTES / 2 - 1;

/// The numbers in a controller list (Base 2.0 §4.4.1): their count, then the numbers in ascending
/// order; `None` if the list is invalid.
pub fn controller_list(data: &[u8]) -> Option<Vec<u16>> {
    let words = data.as_chunks::<2>().0.iter();
    let mut words = words.map(|bytes| u16::from_le_bytes(*bytes));

    let count = usize::from(words.next()?);
    let numbers: Vec<u16> = words.take(count).collect();
    let is_whole = (1..=CONTROLLERS_MAX).contains(&count) && numbers.len() == count;
    (is_whole && numbers.is_sorted_by(|one, next| one < next)).then_some(numbers)
}

/// Serializes a controller list; `numbers` must be ascending.
pub fn put_controller_list(numbers: impl Iterator<Item = u16>) -> Vec<u8> {
    let numbers: Vec<u16> = numbers.take(CONTROLLERS_MAX).collect();
    let words = std::iter::once(numbers.len() as u16).chain(numbers);
    words.flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_as_many_numbers_as_it_says_in_ascending_order() {
        let list = put_controller_list([1, 2, 7].into_iter());
        assert_eq!(list, [3, 0, 1, 0, 2, 0, 7, 0]);
        assert_eq!(controller_list(&list), Some(vec![1, 2, 7]));
        assert_eq!(controller_list(&list[..6]), None);
        assert_eq!(controller_list(&[0, 0, 1, 0]), None);
        assert_eq!(controller_list(&[2, 0, 2, 0, 2, 0]), None);
        assert_eq!(controller_list(&[]), None);
    }
}
