//! MurmurHash3, the 128-bit variant for 64-bit machines (Appleby, public domain), which Coldmap
//! uses for fingerprints.
//!
//! It distributes well, but anyone can construct a collision (a test does), so its hits are
//! verified by reading. Checked against the value of its own test suite, SMHasher. Absent:
//! incremental hashing.

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The hash `h1`, `h2` of `bytes`.
pub(super) fn murmur3(bytes: &[u8], seed: u32) -> [u64; 2] {
    let (mut h1, mut h2) = (u64::from(seed), u64::from(seed));
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let [k1, k2] = halves(block);
        h1 = (h1 ^ mix1(k1))
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(k2))
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }

    if !tail.is_empty() {
        let mut block = [0; 16];
        block[..tail.len()].copy_from_slice(tail);
        let [k1, k2] = halves(&block);
        (h1, h2) = (h1 ^ mix1(k1), h2 ^ mix2(k2));
    }

    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish(h1), finish(h2));
    h1 = h1.wrapping_add(h2);
    [h1, h2.wrapping_add(h1)]
}

fn halves(block: &[u8; 16]) -> [u64; 2] {
    let [first, second] = block.as_chunks::<8>().0 else {
        unreachable!("16 bytes are twice 8")
    };
    [u64::from_le_bytes(*first), u64::from_le_bytes(*second)]
}

fn mix1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::murmur3;

    fn bytes([h1, h2]: [u64; 2]) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&h1.to_le_bytes());
        bytes[8..].copy_from_slice(&h2.to_le_bytes());
        bytes
    }

    /// The verification of SMHasher, the hash's own test program: keys of 0 to 255 bytes, each with
    /// a different seed.
    #[test]
    fn it_is_the_published_function() {
        let key: Vec<u8> = (0..=255).collect();
        let all: Vec<u8> = (0..256)
            .flat_map(|len| bytes(murmur3(&key[..len], 256 - len as u32)))
            .collect();
        assert_eq!(bytes(murmur3(&all, 0))[..4], 0x6384_ba69_u32.to_le_bytes());
        let fox = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(
            murmur3(fox, 0),
            [0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347]
        );
    }
}
