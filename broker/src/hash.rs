//! The hash that keys are spread by: `MurmurHash3`, 32 bits, as Pulsar's clients compute it.

/// `MurmurHash3_x86_32` (Austin Appleby, public domain) of a key, with seed 0.
pub(crate) fn murmur3_32(key: &[u8]) -> u32 {
    let mut hash = 0;
    let (blocks, rest) = key.as_chunks::<4>();
    for block in blocks {
        hash = (hash ^ scramble(u32::from_le_bytes(*block)))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    let tail = rest.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    if !rest.is_empty() {
        hash ^= scramble(tail);
    }
    // The length counts modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "as the algorithm has it")]
    let length = key.len() as u32;
    hash ^= length;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn scramble(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[cfg(test)]
mod tests {
    use super::murmur3_32;

    /// K2: keys are hashed as Pulsar's clients do, by the published vectors of the hash.
    #[test]
    fn published_vectors() {
        for (key, hash) in [
            (&b""[..], 0),
            (&[0xff, 0xff, 0xff, 0xff][..], 0x7629_3b50),
            (&[0x21, 0x43, 0x65, 0x87][..], 0xf55b_516b),
            (&[0x21, 0x43, 0x65][..], 0x7e4a_8634),
            (&[0x21, 0x43][..], 0xa0f7_b07a),
            (&[0x21][..], 0x7266_1cf4),
            (&[0, 0, 0, 0][..], 0x2362_f9de),
            (b"Hello, world!", 0xc036_3e43),
            (b"The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
        ] {
            assert_eq!(murmur3_32(key), hash, "{key:?}");
        }
    }
}
