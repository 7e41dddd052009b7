//! What a message of a scenario carries: who sent it, in which place of which order, when, and whether it arrived whole.

use bytes::Bytes;
use twox_hash::XxHash3_64;

/// Bytes of a message.
pub const LEN: usize = 128;

/// Where the fields are; the key comes first, since the broker spreads messages by it.
const KEY: usize = 0;
const PRODUCER: usize = 4;
const SEQUENCE: usize = 8;
const KEY_SEQUENCE: usize = 16;
const SENT: usize = 20;
/// At the end, so that one pass over what is before it makes it.
const CHECKSUM: usize = LEN - 8;

/// The fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The key; each belongs to one producer.
    pub key: u32,
    /// The producer.
    pub producer: u32,
    /// Which message of its producer it is, from 0 on.
    pub sequence: u64,
    /// Which message of its key it is, from 0 on.
    pub key_sequence: u32,
    /// When it was sent, in nanoseconds of the run's clock.
    pub sent_nanos: u64,
}

/// A message, in one allocation.
pub fn encode(fields: &Fields) -> Bytes {
    Bytes::from_owner(encode_bytes(fields))
}

/// The bytes of a message.
pub fn encode_bytes(fields: &Fields) -> [u8; LEN] {
    let mut bytes = [0x5a; LEN];
    put(&mut bytes, KEY, fields.key.to_le_bytes());
    put(&mut bytes, PRODUCER, fields.producer.to_le_bytes());
    put(&mut bytes, SEQUENCE, fields.sequence.to_le_bytes());
    put(&mut bytes, KEY_SEQUENCE, fields.key_sequence.to_le_bytes());
    put(&mut bytes, SENT, fields.sent_nanos.to_le_bytes());
    let checksum = checksum(&bytes);
    put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
    bytes
}

/// The fields of a message; none if it is not one, or did not arrive whole.
pub fn decode(payload: &[u8]) -> Option<Fields> {
    let bytes: &[u8; LEN] = payload.try_into().ok()?;
    if u64::from_le_bytes(get(bytes, CHECKSUM)) != checksum(bytes) {
        return None;
    }
    Some(Fields {
        key: u32::from_le_bytes(get(bytes, KEY)),
        producer: u32::from_le_bytes(get(bytes, PRODUCER)),
        sequence: u64::from_le_bytes(get(bytes, SEQUENCE)),
        key_sequence: u32::from_le_bytes(get(bytes, KEY_SEQUENCE)),
        sent_nanos: u64::from_le_bytes(get(bytes, SENT)),
    })
}

/// The bytes of the key, for the broker.
pub fn key_of(payload: &[u8]) -> &[u8] {
    payload.get(KEY..KEY + 4).unwrap_or(payload)
}

/// XXH3 of all that is before the checksum: for so few bytes it takes half the time of a CRC, each step of which waits for the one before.
fn checksum(bytes: &[u8; LEN]) -> u64 {
    XxHash3_64::oneshot(&bytes[..CHECKSUM])
}

fn put<const N: usize>(bytes: &mut [u8; LEN], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn get<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was_and_any_changed_byte_is_noticed() {
        let fields = Fields { key: 7, producer: 3, sequence: 1 << 40, key_sequence: 9, sent_nanos: 5 };
        let bytes = encode_bytes(&fields);
        assert_eq!(decode(&bytes), Some(fields));
        for at in 0..LEN {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
        assert_eq!(decode(&bytes[1..]), None);
        assert_eq!(key_of(&bytes), 7_u32.to_le_bytes());
    }
}
