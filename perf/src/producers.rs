//! The producers: many clients, driven by few threads, each with a bound of outstanding messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use folio_broker::Topic;
use folio_ledger::{AppendError, AppendSink, Position};
use folio_sync::time::{Clock, Instant, SystemClock};
use hdrhistogram::Histogram;

use crate::payload::{Fields, encode, encode_bytes};
use crate::settings::{Plant, Settings};

/// How many acknowledgement times of a producer are kept: at least as many as it may have outstanding.
const RING: usize = 64;

/// A message on its way, as its publisher is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    producer: u32,
    sequence: u64,
}

/// What a producer's client knows of its messages: written by the ledger's worker, read by the producer's thread.
#[derive(Debug)]
struct Acks {
    /// How many are acknowledged, in order.
    acknowledged: AtomicU64,
    failed: AtomicU64,
    /// When, by the lower part of the sequence.
    at_nanos: [AtomicU64; RING],
}

/// Hears of published messages.
#[derive(Clone, Debug)]
pub(crate) struct Publishes(Arc<[CachePadded<Acks>]>);

impl Publishes {
    /// For so many producers.
    pub(crate) fn new(producers: u32) -> Self {
        let acks = || Acks {
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            at_nanos: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self((0..producers).map(|_| CachePadded::new(acks())).collect())
    }

    /// Messages that were not published.
    pub(crate) fn failed(&self) -> u64 {
        self.0.iter().map(|acks| acks.failed.load(Ordering::Relaxed)).sum()
    }
}

impl AppendSink<Token> for Publishes {
    fn appended(&self, token: Token, result: Result<Position, AppendError>, at: Instant) {
        let acks = &self.0[token.producer as usize];
        if result.is_err() {
            acks.failed.fetch_add(1, Ordering::Relaxed);
        }
        acks.at_nanos[slot(token.sequence)].store(at.as_nanos(), Ordering::Relaxed);
        acks.acknowledged.store(token.sequence + 1, Ordering::Release);
    }
}

fn slot(sequence: u64) -> usize {
    usize::try_from(sequence % RING as u64).unwrap_or(0)
}

/// One producer's client.
struct Producer {
    id: u32,
    sent: u64,
    seen: u64,
    sent_nanos: [u64; RING],
    /// How many messages each of its keys has.
    keys: Vec<u32>,
    random: u64,
}

/// What a thread of producers leaves behind.
pub(crate) struct Produced {
    /// Messages of each key, by producer.
    pub(crate) keys: Vec<(u32, Vec<u32>)>,
    /// Publish latency in microseconds.
    pub(crate) latency: Histogram<u64>,
}

/// Drives some producers until their share of the messages is acknowledged.
pub(crate) struct Driver<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) topic: &'a Topic<Token>,
    pub(crate) publishes: &'a Publishes,
    pub(crate) clock: &'a SystemClock,
    /// Set once all of this thread's messages are sent.
    pub(crate) sent_all: &'a AtomicBool,
    /// Ends the thread early.
    pub(crate) stop: &'a AtomicBool,
}

impl Driver<'_> {
    /// Sends `messages` by producers `first`, `first + step`, and so on.
    pub(crate) fn run(&self, first: u32, step: u32, messages: u64) -> Produced {
        let settings = self.settings;
        let mut latency = Histogram::new(3).expect("three digits can be kept");
        let mut producers: Vec<_> = (first..settings.producers)
            .step_by(step as usize)
            .map(|id| Producer {
                id,
                sent: 0,
                seen: 0,
                sent_nanos: [0; RING],
                keys: vec![0; settings.keys_per_producer as usize],
                random: settings.seed ^ u64::from(id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            })
            .collect();
        let outstanding = u64::from(settings.outstanding).min(RING as u64);
        let mut left = messages;
        // Only the first thread plants: with the first message of the second half, and while there is room for those that it needs.
        let mut plant = settings.plant.filter(|_| first == 0);
        let plant_from = plant.map_or(0, |plant| messages.div_ceil(2).max(plant.needs()));
        let mut idle = 0;
        while !self.stop.load(Ordering::Acquire) {
            let mut progress = false;
            let mut all_seen = true;
            for producer in &mut producers {
                progress |= self.see(producer, &mut latency);
                let room = (outstanding - (producer.sent - producer.seen)).min(left);
                if room > 0 && !self.holds_back() {
                    let now = self.clock.now().as_nanos();
                    let mut to_send = room;
                    while to_send > 0 {
                        let sent = match plant.take_if(|_| left <= plant_from) {
                            None => self.send(producer, now),
                            Some(fault) if fault.needs() <= to_send => self.plant(producer, now, fault),
                            Some(fault) => {
                                // Nobody sends until one of them has the room: it comes, since all of its messages are acknowledged.
                                plant = Some(fault);
                                break;
                            }
                        };
                        to_send -= sent;
                        left -= sent;
                        progress = true;
                    }
                }
                all_seen &= producer.seen == producer.sent;
            }
            if left == 0 {
                self.sent_all.store(true, Ordering::Release);
                if all_seen {
                    break;
                }
            }
            idle = if progress { 0 } else { idle + 1 };
            wait(idle);
        }
        for producer in &mut producers {
            self.see(producer, &mut latency);
        }
        Produced {
            keys: producers.into_iter().map(|producer| (producer.id, producer.keys)).collect(),
            latency,
        }
    }

    /// Whether the subscription has so much to read that nothing more is to be published for now.
    fn holds_back(&self) -> bool {
        self.settings.max_unread != 0 && self.topic.unread() > self.settings.max_unread
    }

    /// Sees what was acknowledged; whether there was something.
    fn see(&self, producer: &mut Producer, latency: &mut Histogram<u64>) -> bool {
        let acks = &self.publishes.0[producer.id as usize];
        let acknowledged = acks.acknowledged.load(Ordering::Acquire);
        // A planted fault has messages acknowledged out of order.
        let fresh = producer.seen..acknowledged;
        for sequence in fresh.clone() {
            let at = acks.at_nanos[slot(sequence)].load(Ordering::Relaxed);
            record(latency, at.saturating_sub(producer.sent_nanos[slot(sequence)]));
        }
        producer.seen = producer.seen.max(acknowledged);
        !fresh.is_empty()
    }

    /// Sends a message; how many that are.
    fn send(&self, producer: &mut Producer, now: u64) -> u64 {
        // xorshift64*
        producer.random ^= producer.random >> 12;
        producer.random ^= producer.random << 25;
        producer.random ^= producer.random >> 27;
        let random = producer.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        let at = random % u64::from(self.settings.keys_per_producer);
        let (fields, token) = self.next(producer, u32::try_from(at).unwrap_or(0), now);
        self.topic.publish(encode(&fields), token);
        1
    }

    /// Sends messages of one key with a fault; how many that are.
    fn plant(&self, producer: &mut Producer, now: u64, fault: Plant) -> u64 {
        let (fields, token) = self.next(producer, 0, now);
        match fault {
            Plant::Duplicate => {
                self.topic.publish(encode(&fields), token);
                self.topic.publish(encode(&fields), token);
            }
            Plant::Swap => {
                let (later, token_of_later) = self.next(producer, 0, now);
                self.topic.publish(encode(&later), token_of_later);
                self.topic.publish(encode(&fields), token);
            }
            Plant::Loss => {
                let now = self.clock.now();
                self.publishes.appended(token, Ok(Position { ledger: 0, entry: -1 }), now);
            }
            Plant::Corruption => {
                let mut bytes = encode_bytes(&fields);
                bytes[64] ^= 1;
                self.topic.publish(Bytes::from_owner(bytes), token);
            }
        }
        fault.needs()
    }

    /// The producer's next message: of this one of its keys, to be sent now.
    fn next(&self, producer: &mut Producer, at: u32, now: u64) -> (Fields, Token) {
        let of_key = &mut producer.keys[at as usize];
        let fields = Fields {
            key: producer.id * self.settings.keys_per_producer + at,
            producer: producer.id,
            sequence: producer.sent,
            key_sequence: *of_key,
            sent_nanos: now,
        };
        *of_key += 1;
        producer.sent_nanos[slot(producer.sent)] = now;
        let token = Token { producer: producer.id, sequence: producer.sent };
        producer.sent += 1;
        (fields, token)
    }
}

/// Records a latency, in microseconds.
pub(crate) fn record(latency: &mut Histogram<u64>, nanos: u64) {
    // One that does not fit lasted for years.
    let _kept = latency.record(nanos / 1_000);
}

/// Leaves the processor to others for a while, longer the more often there was nothing to do.
fn wait(idle: u32) {
    match idle {
        0 => {}
        1..8 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}
