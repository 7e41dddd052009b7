//! A producer publishes, and consumers with threads of their own share the messages by key; on threads and by the clock of the machine.
//!
//! usage: sharing [messages]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example uses the standard library's threads and clock"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use folio_broker::{Consumer, Kind, Message, Subscription, SubscriptionOptions, Topic};
use folio_executor::OrderedExecutor;
use folio_ledger::{
    AppendError, AppendSink, CacheManager, CacheOptions, LedgerOptions, MemoryStorage, Position,
};
use folio_sync::time::{Instant, SystemClock};
use folio_sync::timers::ThreadTimers;

const CONSUMERS: usize = 3;
const KEYS: u32 = 100;
/// How many messages a consumer takes before it has done with the first of them.
const RECEIVE_QUEUE: u32 = 1_000;
/// How many messages may be unread before the producer holds back.
const MOST_UNREAD: u64 = 10_000;

/// A producer that does not wait for each message.
struct Publishes;

impl AppendSink<()> for Publishes {
    fn appended(&self, (): (), result: Result<Position, AppendError>, _at: Instant) {
        result.expect("memory takes every message");
    }
}

/// What the dispatcher knows of a consumer: the way to its thread. Handing over is all that it does there.
struct ToThread(mpsc::Sender<Vec<Message>>);

impl Consumer for ToThread {
    fn deliver(&self, messages: &mut Vec<Message>) {
        self.0.send(std::mem::take(messages)).expect("its thread waits for the end");
    }

    fn ended(&self) {
        self.0.send(Vec::new()).expect("its thread waits for the end");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let messages: u32 = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let pool = OrderedExecutor::builder().name("broker").threads(3).build()?;
    let [ledger, dispatcher, evicts] = [0, 1, 2].map(|thread| pool.workers()[thread].clone());
    let cache = CacheManager::new(CacheOptions::default(), evicts, ThreadTimers::new(), SystemClock::new())?;
    let topic = Topic::open(LedgerOptions::default(), MemoryStorage::new(), &cache, ledger, Publishes)?;

    let (consumers, inboxes): (Vec<_>, Vec<_>) = (0..CONSUMERS).map(|_| mpsc::channel()).unzip();
    let consumers =
        consumers.into_iter().map(|inbox| Arc::new(ToThread(inbox)) as Arc<dyn Consumer>).collect();
    let options = SubscriptionOptions::new(Kind::KeyShared { key_of });
    let subscription = topic.subscribe(options, consumers, dispatcher, ThreadTimers::new())?;

    let began = std::time::Instant::now();
    let shares = thread::scope(|scope| {
        let subscription = &subscription;
        let threads: Vec<_> = (0..)
            .zip(inboxes)
            .map(|(number, inbox)| scope.spawn(move || consume(subscription, number, &inbox)))
            .collect();
        for number in 0..messages {
            while topic.unread() > MOST_UNREAD {
                thread::yield_now();
            }
            topic.publish(encode(number % KEYS, number / KEYS), ());
        }
        // What was published is delivered; then the consumers are told that there is no more.
        topic.close();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a consumer does not panic"))
            .collect::<Vec<_>>()
    });

    println!("{messages} messages of {KEYS} keys in {:?}, shared {shares:?}", began.elapsed());
    assert_eq!(shares.iter().sum::<u32>(), messages);
    assert_eq!(subscription.mark_deleted(), i64::from(messages), "all are acknowledged");
    drop((subscription, topic));
    let _nothing_is_left = pool.join();
    Ok(())
}

/// A consumer's thread: checks the order of each key, acknowledges, and makes room for as many more; how many messages it had.
fn consume(subscription: &Subscription, number: usize, inbox: &mpsc::Receiver<Vec<Message>>) -> u32 {
    let mut next_of_keys = BTreeMap::new();
    let mut received = 0;
    subscription.flow(number, RECEIVE_QUEUE);
    while let Ok(messages) = inbox.recv() {
        if messages.is_empty() {
            break;
        }
        for message in &messages {
            let (key, of_key) = decode(&message.payload);
            let next = next_of_keys.entry(key).or_insert(0);
            assert_eq!(of_key, *next, "the messages of a key come in order, all to one consumer");
            *next += 1;
        }
        let positions: Vec<_> = messages.iter().map(|message| message.position).collect();
        subscription.acknowledge(positions);
        let count = u32::try_from(messages.len()).expect("never more than it has permits for");
        received += count;
        subscription.flow(number, count);
    }
    received
}

fn encode(key: u32, of_key: u32) -> Bytes {
    let mut payload = vec![0x5a; 128];
    payload[..4].copy_from_slice(&key.to_le_bytes());
    payload[4..8].copy_from_slice(&of_key.to_le_bytes());
    payload.into()
}

/// The key, for the broker.
fn key_of(payload: &[u8]) -> &[u8] {
    &payload[..4]
}

fn decode(payload: &[u8]) -> (u32, u32) {
    let field = |at: usize| {
        let bytes = payload[at..at + 4].try_into().expect("it has four bytes");
        u32::from_le_bytes(bytes)
    };
    (field(0), field(4))
}
