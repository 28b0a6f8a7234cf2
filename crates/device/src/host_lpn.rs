//! Addresses of the host: pages of 4 KiB, whatever the indirection unit.
//!
//! ```text
//! host pages of 4 KiB   0  1  2  3 | 4  5  6  7 | 8 ...    HostLpn, up to 2^35: 2^31 units of 16 pages
//! units of 16 KiB            0     |     1      | 2 ...    Lpn, the firmware's page: fewer than 2^31
//! ```
//!
//! Invariants: only `unit` makes a firmware's page of one; a page beyond all units becomes `Lpn(u32::MAX)`, which every device refuses, and
//! never another page; it takes 5 bytes, so that requests do not grow. Absent: the unit of a device (`indirection`).

use remap_ssd_ftl::Lpn;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Number of a page of 4 KiB in the address range of the host.
///
/// On a device whose indirection unit has 4 KiB, it is the number of the firmware's page too.
///
/// ```
/// use remap_ssd_device::{HostLpn, Lpn};
/// let page = HostLpn::new((1 << 34) + 5); // after 64 TiB
/// assert_eq!((page.unit(4), page.place(4)), (Lpn(1 << 30), 5));
/// assert_eq!(page.unit(0), Lpn(u32::MAX)); // no device has as many units
/// assert_eq!(HostLpn::from(Lpn(7)), HostLpn::new(7));
/// assert_eq!(HostLpn::range(page, 2).last(), Some(HostLpn::new((1 << 34) + 6)));
/// ```
// The order of the fields is that of the numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, packed)]
pub struct HostLpn {
    high: u8,
    low: u32,
}

const _: () = assert!(size_of::<HostLpn>() == 5);

impl HostLpn {
    /// The first page.
    pub const ZERO: Self = Self { high: 0, low: 0 };

    /// Pages of the largest device: 2^31 units of 64 KiB.
    pub const PAGES_MAX: u64 = 1 << 35;

    /// The page of this number.
    ///
    /// # Panics
    /// It has more than 40 bits.
    #[inline(always)]
    pub const fn new(page: u64) -> Self {
        assert!(page >> 40 == 0, "a page number has 40 bits");
        Self {
            high: (page >> 32) as u8,
            low: page as u32,
        }
    }

    /// Its number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }

    /// The page this many pages later.
    ///
    /// # Panics
    /// Its number has more than 40 bits.
    #[inline(always)]
    pub const fn offset(self, pages: u32) -> Self {
        Self::new(self.get() + pages as u64)
    }

    /// Its index in a table of all pages.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.get() as usize
    }

    /// The pages of an extent, in order.
    ///
    /// # Panics
    /// A number has more than 40 bits.
    #[inline(always)]
    pub fn range(
        first: Self,
        len: u32,
    ) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone + use<> {
        (0..len).map(move |step| first.offset(step))
    }

    /// The firmware's page that has it, of units of 2^`shift` pages: `Lpn(u32::MAX)`, which no device has, if its number is larger.
    #[inline(always)]
    pub const fn unit(self, shift: u32) -> Lpn {
        let unit = self.get() >> shift;
        Lpn(if unit < u32::MAX as u64 {
            unit as u32
        } else {
            u32::MAX
        })
    }

    /// Its place in its unit of 2^`shift` pages.
    #[inline(always)]
    pub const fn place(self, shift: u32) -> u32 {
        self.low & ((1 << shift) - 1)
    }
}

impl From<Lpn> for HostLpn {
    /// The host's page of this number.
    #[inline(always)]
    fn from(lpn: Lpn) -> Self {
        Self {
            high: 0,
            low: lpn.0,
        }
    }
}

impl From<HostLpn> for u64 {
    #[inline(always)]
    fn from(page: HostLpn) -> Self {
        page.get()
    }
}

impl Hash for HostLpn {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.get());
    }
}

impl fmt::Debug for HostLpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostLpn({})", self.get())
    }
}

impl fmt::Display for HostLpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_near_two_to_the_32_and_34_keep_their_numbers_units_and_order() {
        for near in [1u64 << 32, 1 << 34, HostLpn::PAGES_MAX - 20] {
            let numbers = near - 17..near + 17;
            let pages: Vec<_> = HostLpn::range(HostLpn::new(near - 17), 34).collect();
            assert!(pages.iter().map(|page| page.get()).eq(numbers.clone()));
            assert!(pages.is_sorted());
            assert_eq!(pages[33].offset(1).get(), near + 17);

            for (page, number) in pages.into_iter().zip(numbers) {
                assert_eq!(page.index() as u64, number);
                for shift in 1..=4 {
                    let unit = u64::from(page.unit(shift));
                    let is_far = number >> shift >= u32::MAX.into();
                    assert_eq!(unit, (number >> shift).min(u32::MAX.into()));
                    assert!(is_far || unit << shift | u64::from(page.place(shift)) == number);
                }
            }
        }
    }

    #[test]
    fn a_page_beyond_all_units_is_no_other_page() {
        for number in [u32::MAX.into(), 1 << 32, (1 << 32) + 7, 1 << 39] {
            assert_eq!(HostLpn::new(number).unit(0), Lpn(u32::MAX), "{number}");
        }
        assert_eq!(
            HostLpn::new(u64::from(u32::MAX) - 1).unit(0),
            Lpn(u32::MAX - 1)
        );
    }
}
