//! B9: metadata of cached entries, parsed at once or when somebody asks.
//!
//! An operation copies a message of 128 bytes, makes a cached entry of it, inserts it at the tail, has so many readers read it as a range
//! of one and look at its sequence number and its key, and evicts it. *Eager*: its metadata are parsed before it is inserted. *Lazy*: the
//! first reader parses them, the others have what he has. *By each reader*: the cache holds the bytes alone, and every reader parses.

use std::hint::black_box;

use bytes::{Buf, Bytes};
use folio_cache::{EvictionQueue, Inserter, Metadata, Parsed, RangeCache, Weigh};
use folio_sync::time::Instant;

use super::of_row;
use crate::runner::{Block, Case, Target};

const EAGER: &str = "eager";
const LAZY: &str = "lazy";
const BY_EACH: &str = "by each reader";

/// How many readers there are.
const READERS: [u32; 3] = [0, 1, 20];

/// Messages of a full trial.
const MESSAGES: u64 = 50_000;

fn name(readers: u32) -> String {
    format!("metadata, {readers} readers")
}

/// What a message has before its payload.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    producer: Bytes,
    sequence: u64,
    published: u64,
    key: Bytes,
    checksum: u32,
}

impl Metadata<Bytes> for Header {
    fn parse(message: &Bytes) -> Self {
        let mut rest = message.clone();
        let text = |rest: &mut Bytes| {
            let length = usize::from(rest.get_u16());
            rest.split_to(length)
        };
        let producer = text(&mut rest);
        let (sequence, published) = (rest.get_u64(), rest.get_u64());
        let key = text(&mut rest);
        Self { producer, sequence, published, key, checksum: rest.get_u32() }
    }
}

/// A message of 128 bytes.
fn message() -> Vec<u8> {
    let mut message = Vec::new();
    let text = |message: &mut Vec<u8>, text: &[u8]| {
        message.extend((u16::try_from(text.len()).expect("short")).to_be_bytes());
        message.extend(text);
    };
    text(&mut message, b"standalone-0-17");
    message.extend(4_711_u64.to_be_bytes());
    message.extend(1_700_000_000_000_u64.to_be_bytes());
    text(&mut message, b"key-0042");
    message.extend(0xDEAD_BEEF_u32.to_be_bytes());
    message.resize(128, 7);
    message
}

/// How an entry is kept, and how its header is had.
trait Kept: Weigh + Clone + 'static {
    fn keep(message: Bytes) -> Self;
    fn header<R>(&self, look: impl FnOnce(&Header) -> R) -> R;
}

impl Kept for Parsed<Bytes, Header> {
    fn keep(message: Bytes) -> Self {
        Self::new(message)
    }

    fn header<R>(&self, look: impl FnOnce(&Header) -> R) -> R {
        look(self.metadata())
    }
}

impl Kept for Bytes {
    fn keep(message: Bytes) -> Self {
        message
    }

    fn header<R>(&self, look: impl FnOnce(&Header) -> R) -> R {
        look(&Header::parse(self))
    }
}

/// A cache at whose tail messages come and go.
struct Tail<V> {
    queue: EvictionQueue<V>,
    cache: RangeCache<V>,
    inserter: Inserter<V>,
    next: i64,
    message: Vec<u8>,
}

impl<V: Kept> Tail<V> {
    fn new() -> Self {
        let queue = EvictionQueue::default();
        let cache = RangeCache::new(&queue);
        Self { inserter: cache.inserter(), cache, queue, next: 0, message: message() }
    }

    fn run(&mut self, eager: bool, readers: u32) {
        let position = (1, self.next);
        self.next += 1;
        let entry = V::keep(Bytes::copy_from_slice(&self.message));
        if eager {
            entry.header(|header| {
                black_box(header);
            });
        }
        let now = Instant::from_nanos(1);
        assert!(self.inserter.insert(position, entry, readers, now).is_ok(), "nothing is there");
        for _ in 0..readers {
            let read = self.cache.range(position..=position);
            let [(_, entry)] = &read[..] else { unreachable!("it is there") };
            entry.header(|header| black_box((header.sequence, header.key.len())));
        }
        self.cache.mark_read(position);
        let evicted = self.queue.evict_weight(u64::MAX, now).expect("nobody else evicts");
        assert_eq!(evicted.entries, 1);
    }
}

fn case<V: Kept>(name: &str, eager: bool, readers: u32) -> Case {
    let mut opened = None;
    Case::looped(name, MESSAGES, move |operations| {
        let tail = opened.get_or_insert_with(Tail::<V>::new);
        for _ in 0..operations {
            tail.run(eager, readers);
        }
    })
}

/// The rows of B9.
pub(super) fn blocks() -> Vec<Block> {
    READERS
        .map(|readers| {
            let cases = vec![
                case::<Parsed<Bytes, Header>>(EAGER, true, readers),
                case::<Parsed<Bytes, Header>>(LAZY, false, readers),
                case::<Bytes>(BY_EACH, false, readers),
            ];
            Block::new(name(readers), cases)
        })
        .into()
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    [(0, LAZY, EAGER, 1.0, 0.9), (1, LAZY, EAGER, 1.1, 1.0), (20, LAZY, BY_EACH, 0.9, 0.7)]
        .map(|(readers, case, other, gate, goal)| {
            let block = name(readers);
            of_row(&format!("{block}: {case}, of {other}"), (&block, case), (&block, other), gate, goal)
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_was_written() {
        let message = Bytes::from(message());
        assert_eq!(message.len(), 128);
        let header = Header::parse(&message);
        assert_eq!((&header.producer[..], &header.key[..]), (&b"standalone-0-17"[..], &b"key-0042"[..]));
        assert_eq!(
            (header.sequence, header.published, header.checksum),
            (4_711, 1_700_000_000_000, 0xDEAD_BEEF)
        );
    }
}
