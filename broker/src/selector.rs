//! Which consumer a key belongs to: fixed, equal ranges of its hash.

use folio_sync::unwind;

use crate::hash::murmur3_32;

/// How many values a hash has.
const SLOTS: u32 = 1 << 16;

/// Finds the key in a payload.
pub type KeyOf = fn(&[u8]) -> &[u8];

/// Splits the hashes of keys among consumers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector {
    key_of: KeyOf,
    consumers: u32,
}

impl Selector {
    pub(crate) fn new(key_of: KeyOf, consumers: usize) -> Self {
        let consumers = u32::try_from(consumers).unwrap_or(SLOTS).clamp(1, SLOTS);
        Self { key_of, consumers }
    }

    /// The consumer of the key that is in this payload.
    ///
    /// One whose key cannot be found, since that panics, counts as having an empty one.
    pub(crate) fn select(&self, payload: &[u8]) -> usize {
        let key = unwind::catch(|| (self.key_of)(payload)).unwrap_or_else(|payload| {
            unwind::discard(payload);
            &[]
        });
        (slot(key) * self.consumers / SLOTS) as usize
    }
}

/// The hash of a key: below 65,536, and never 0, which stands for none.
fn slot(key: &[u8]) -> u32 {
    ((murmur3_32(key) & 0x7fff_ffff) % SLOTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K1, K2: keys are spread over all consumers by their hash.
    #[test]
    fn each_consumer_has_about_its_share_of_the_keys_and_always_the_same() {
        let selector = Selector::new(|payload| &payload[..4], 20);
        let mut keys = [0; 20];
        for key in 0..20_000_u32 {
            let mut payload = [0; 8];
            payload[..4].copy_from_slice(&key.to_le_bytes());
            let consumer = selector.select(&payload);
            payload[7] = 9;
            assert_eq!(selector.select(&payload), consumer, "only the key counts");
            keys[consumer] += 1;
        }
        assert!(keys.iter().all(|count| (800..1200).contains(count)), "{keys:?}");
    }
}
