//! A message that is published, dispatched, delivered and acknowledged allocates nothing beyond its payload.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

#[cfg(not(any(loom, shuttle)))]
mod support;

#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
fn main() {
    count::the_counter_sees_an_allocation();
    for kind in [folio_broker::Kind::Exclusive, support::KEY_SHARED] {
        count::a_message_allocates_nothing_beyond_its_payload(kind);
    }
    println!("allocations: ok");
}

#[cfg(not(any(loom, shuttle)))]
mod count {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use folio_broker::{Consumer, Kind, Message, Subscription, SubscriptionOptions, Topic};
    use folio_executor::OrderedExecutor;
    use folio_ledger::{LedgerOptions, MemoryStorage, Position};
    use folio_sync::test_util::ManualClock;
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_sync::timers::ThreadTimers;
    use folio_sync::{Arc, Mutex};

    use super::support::{Deaf, Place, manager, shared, until};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    const CONSUMERS: usize = 4;

    pub(super) fn the_counter_sees_an_allocation() {
        let before = Counts::now();
        drop(std::hint::black_box(Box::new(7_u64)));
        assert_eq!((Counts::now() - before).allocations, 1, "a deliberate allocation is seen");
    }

    /// Acknowledges what it gets and gives new permits, on the dispatcher's thread.
    struct Client {
        number: usize,
        received: AtomicU64,
        positions: Mutex<Vec<Position>>,
        subscription: Place,
    }

    impl Consumer for Client {
        fn deliver(&self, messages: &mut Vec<Message>) {
            let mut positions = self.positions.lock();
            positions.extend(messages.drain(..).map(|message| message.position));
            let subscription = self.subscription.get();
            assert_eq!(subscription.acknowledge(&*positions), positions.len());
            subscription.flow(self.number, u32::try_from(positions.len()).unwrap());
            self.received.fetch_add(positions.len() as u64, Ordering::Release);
            positions.clear();
        }
    }

    struct Scene {
        topic: Topic<()>,
        clients: Vec<Arc<Client>>,
        subscription: Arc<Subscription>,
        pool: OrderedExecutor,
        sent: u64,
    }

    impl Scene {
        fn new(kind: Kind) -> Self {
            let pool = OrderedExecutor::builder().threads(2).build().unwrap();
            let [worker, dispatcher] = [0, 1].map(|thread| pool.workers()[thread].clone());
            let cache = manager(&ManualClock::new(), 1 << 30);
            let topic =
                Topic::open(LedgerOptions::default(), MemoryStorage::new(), &cache, worker, Deaf).unwrap();
            let subscription = Place::default();
            let consumers = if matches!(kind, Kind::Exclusive) { 1 } else { CONSUMERS };
            let clients: Vec<_> = (0..consumers)
                .map(|number| {
                    Arc::new(Client {
                        number,
                        received: AtomicU64::new(0),
                        positions: Mutex::new(Vec::with_capacity(10_000)),
                        subscription: subscription.clone(),
                    })
                })
                .collect();
            let consumers = clients.iter().map(shared).collect();
            let opened = topic
                .subscribe(SubscriptionOptions::new(kind), consumers, dispatcher, ThreadTimers::new())
                .unwrap();
            let opened = Arc::new(opened);
            subscription.set(&opened);
            (0..clients.len()).for_each(|number| opened.flow(number, 2_000));
            Self { topic, clients, subscription: opened, pool, sent: 0 }
        }

        /// Publishes messages without an allocation for their payloads, at most so many on their way at a time.
        fn publish(&mut self, messages: u64) {
            const OUTSTANDING: u64 = 2_000;
            static PAYLOADS: &[u8; 1_024] = &[7; 1_024];
            for _ in 0..messages {
                let key = usize::try_from(self.sent % 1_000).unwrap();
                let sent = self.sent;
                if sent.is_multiple_of(256) {
                    until("there is room", || sent - self.received() < OUTSTANDING);
                }
                self.topic.publish(Bytes::from_static(&PAYLOADS[key..key + 24]), ());
                self.sent += 1;
            }
            until("all are received", || self.received() == self.sent);
        }

        fn received(&self) -> u64 {
            self.clients.iter().map(|client| client.received.load(Ordering::Acquire)).sum()
        }

        fn end(self) {
            drop(self.subscription);
            drop(self.topic);
            drop(self.clients);
            drop(self.pool.join());
        }
    }

    pub(super) fn a_message_allocates_nothing_beyond_its_payload(kind: Kind) {
        const MESSAGES: u64 = 400_000;
        let mut scene = Scene::new(kind);
        scene.publish(50_000);
        let before = Counts::now();
        scene.publish(MESSAGES);
        let during = Counts::now() - before;
        let bytes = during.allocated_bytes / MESSAGES;
        println!("{} allocations for {MESSAGES} messages, {bytes} bytes each", during.allocations);
        // A page of the cache for 64 messages, a block of the queue for 128, a segment of storage for 4,096.
        assert!(during.allocations * 100 <= MESSAGES * 3, "{during:?} for {MESSAGES} messages");
        assert!(during.live_bytes() < 8 << 20, "nothing stays: {during:?}");
        scene.end();
    }
}
