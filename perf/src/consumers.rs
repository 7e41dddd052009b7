//! The consumers: clients that take what the dispatcher gives, check it, acknowledge it and give new permits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use folio_broker::{Consumer, Message, Subscription};
use folio_executor::Worker;
use folio_ledger::Position;
use folio_sync::Mutex;
use folio_sync::time::{Clock, SystemClock};
use folio_turn::{Demand, Next, Stranded, Turn, Work};
use hdrhistogram::Histogram;

use crate::payload::decode;
use crate::producers::record;
use crate::verify::Tracker;

/// Messages are in the receive queue.
const MAIL: Demand = Demand::soft(0);

/// What a client shares with the dispatcher and with whoever asks how far it is.
pub(crate) struct Client {
    /// The receive queue.
    queue: Mutex<Vec<Message>>,
    turn: OnceLock<Turn<Receiver>>,
    worker: Worker,
    /// Messages that were taken out of the queue and checked.
    received: AtomicU64,
}

impl Client {
    /// Messages that were received and checked.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Consumer for Client {
    fn deliver(&self, messages: &mut Vec<Message>) {
        self.queue.lock().append(messages);
        if let Some(turn) = self.turn.get()
            && turn.record(MAIL).must_run()
            && let Err(stranded) = turn.schedule(&self.worker)
        {
            stranded.settle();
        }
    }
}

/// What a client found, in the end.
pub(crate) struct Received {
    pub(crate) tracker: Tracker,
    /// End-to-end latency in microseconds.
    pub(crate) latency: Histogram<u64>,
}

/// The state of a client's turn.
pub(crate) struct Receiver {
    client: Weak<Client>,
    /// Which consumer of the subscription it is.
    number: usize,
    subscription: Arc<OnceLock<Weak<Subscription>>>,
    clock: Arc<SystemClock>,
    messages: Vec<Message>,
    positions: Vec<Position>,
    /// Permits used and not given again.
    used: u32,
    /// How many make it worth it.
    refill: u32,
    received: Option<Received>,
    outcome: Arc<Mutex<Vec<Received>>>,
}

/// What ends a client: it hands out what it found.
const END: Demand = Demand::urgent(0);

impl Receiver {
    /// Takes what is in the receive queue; whether there was something.
    fn receive(&mut self) -> bool {
        let Some(client) = self.client.upgrade() else { return false };
        std::mem::swap(&mut *client.queue.lock(), &mut self.messages);
        if self.messages.is_empty() {
            return false;
        }
        let Some(received) = &mut self.received else { return false };
        let now = self.clock.now().as_nanos();
        for message in &self.messages {
            let fields = decode(&message.payload);
            if let Some(fields) = &fields {
                record(&mut received.latency, now.saturating_sub(fields.sent_nanos));
            }
            received.tracker.arrived(message.position.entry, fields);
            self.positions.push(message.position);
        }
        let count = self.messages.len();
        client.received.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(subscription) = self.subscription.get().and_then(Weak::upgrade) {
            subscription.acknowledge(self.positions.drain(..));
            self.used += u32::try_from(count).unwrap_or(u32::MAX);
            if self.used >= self.refill {
                subscription.flow(self.number, std::mem::take(&mut self.used));
            }
        }
        self.positions.clear();
        self.messages.clear();
        true
    }
}

impl Work for Receiver {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        if self.receive() {
            return Next::Again;
        }
        if demand.contains(END) {
            self.outcome.lock().extend(self.received.take());
        }
        Next::Idle
    }

    fn stranded(stranded: Stranded<Self>) {
        drop(stranded.ownership);
    }
}

/// How clients are made.
pub(crate) struct Clients {
    pub(crate) clock: Arc<SystemClock>,
    /// The subscription, once there is one.
    pub(crate) subscription: Arc<OnceLock<Weak<Subscription>>>,
    pub(crate) receive_queue: u32,
    /// Where clients leave what they found.
    pub(crate) outcome: Arc<Mutex<Vec<Received>>>,
}

impl Clients {
    /// A client of this number, which works on this worker.
    pub(crate) fn client(&self, number: usize, worker: Worker, tracker: Tracker) -> Arc<Client> {
        let client = Arc::new(Client {
            queue: Mutex::default(),
            turn: OnceLock::new(),
            worker: worker.clone(),
            received: AtomicU64::new(0),
        });
        let latency = Histogram::new(3).expect("three digits can be kept");
        let receiver = Receiver {
            client: Arc::downgrade(&client),
            number,
            subscription: Arc::clone(&self.subscription),
            clock: Arc::clone(&self.clock),
            messages: Vec::new(),
            positions: Vec::new(),
            used: 0,
            refill: (self.receive_queue / 2).max(1),
            received: Some(Received { tracker, latency }),
            outcome: Arc::clone(&self.outcome),
        };
        client.turn.get_or_init(|| Turn::builder(receiver).yield_to(worker));
        client
    }
}

impl Client {
    /// Has the client hand out what it found, after what is in its queue.
    pub(crate) fn end(&self) {
        if let Some(turn) = self.turn.get()
            && turn.record(END).must_run()
            && let Err(stranded) = turn.schedule(&self.worker)
        {
            stranded.settle();
        }
    }
}
