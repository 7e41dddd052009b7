//! What a run does.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A scenario: who consumes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 500 producers and one exclusive consumer with a receive queue of 50,000.
    ReadCompletionIsolation,
    /// 500 producers and 20 consumers that share keys, with receive queues of 1,000.
    KeyShared,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::KeyShared, Self::ReadCompletionIsolation];

    /// What the command calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadCompletionIsolation => "read-completion-isolation",
            Self::KeyShared => "key-shared-500x20",
        }
    }

    /// What it does, in a line.
    pub const fn description(self) -> &'static str {
        match self {
            Self::ReadCompletionIsolation => {
                "500 producers, one exclusive consumer with a receive queue of 50,000"
            }
            Self::KeyShared => "500 producers, 20 consumers that share keys, with receive queues of 1,000",
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name).ok_or_else(|| {
            format!("there is no scenario {name:?}; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// On which thread reads complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// On the thread that asks.
    Inline,
    /// On the ledger's worker.
    Affine,
}

/// How appends go to the ledger's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Many with one submission.
    Batched,
    /// Each by itself.
    Single,
}

/// Where reads find recent entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// In the range cache.
    Paged,
    /// In storage only.
    None,
}

/// Where messages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory, as long as somebody needs them.
    Memory,
    /// In files, which an append has survived the end of the process by when it is acknowledged.
    Written,
    /// In files, which an append has survived the loss of power by when it is acknowledged.
    Synced,
}

/// A fault that is planted half-way, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// One message is published twice.
    Duplicate,
    /// Two messages of one key change places.
    Swap,
    /// One message is not published.
    Loss,
    /// One byte of a message is changed.
    Corruption,
}

impl Plant {
    /// How many messages of one producer it takes.
    pub const fn needs(self) -> u64 {
        match self {
            Self::Swap => 2,
            Self::Duplicate | Self::Loss | Self::Corruption => 1,
        }
    }
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scenario.
    pub scenario: Scenario,
    /// Messages in all.
    pub messages: u64,
    /// Producers, as clients; few threads drive them.
    pub producers: u32,
    /// Messages that a producer may have outstanding.
    pub outstanding: u32,
    /// Keys of each producer.
    pub keys_per_producer: u32,
    /// Consumers.
    pub consumers: usize,
    /// How many messages each consumer gives permits for.
    pub receive_queue: u32,
    /// How many messages the subscription may have unread before producers hold back; 0 for as many as there are.
    pub max_unread: u64,
    /// Threads that drive the producers.
    pub producer_threads: usize,
    /// Threads that drive the consumers.
    pub consumer_threads: usize,
    /// The first idea.
    pub completion: Completion,
    /// The second.
    pub handover: Handover,
    /// The third.
    pub cache: Cache,
    /// Where messages are stored.
    pub storage: Storage,
    /// The folder in which a run has its files, in one of its own that is removed afterwards; that of the system for such things by default.
    pub dir: Option<PathBuf>,
    /// A fault to plant.
    pub plant: Option<Plant>,
    /// Prints a line from time to time.
    pub progress: bool,
    /// Seeds what is random.
    pub seed: u64,
}

impl Settings {
    /// Messages of a run that takes some seconds.
    pub const SMALL: u64 = 2_000_000;
    /// How many messages may be unread by default: about what is published in some hundredths of a second.
    pub const MAX_UNREAD: u64 = 50_000;
    /// Messages of a full run.
    pub const FULL: u64 = 12_000_000;
    /// The most messages of a run.
    pub const MOST_MESSAGES: u64 = 1_000_000_000;
    /// The most keys of a run, each of which takes some memory.
    pub const MOST_KEYS: u32 = 16_000_000;
    /// The most threads that drive producers, and that drive consumers.
    pub const MOST_THREADS: usize = 64;

    /// A scenario, with the three ideas, as small as it is by default.
    pub fn new(scenario: Scenario) -> Self {
        let (consumers, receive_queue) = match scenario {
            Scenario::ReadCompletionIsolation => (1, 50_000),
            Scenario::KeyShared => (20, 1_000),
        };
        Self {
            scenario,
            messages: Self::SMALL,
            producers: 500,
            outstanding: 40,
            keys_per_producer: 200,
            consumers,
            receive_queue,
            max_unread: Self::MAX_UNREAD,
            producer_threads: 1,
            consumer_threads: 1,
            completion: Completion::Inline,
            handover: Handover::Batched,
            cache: Cache::Paged,
            storage: Storage::Memory,
            dir: None,
            plant: None,
            progress: false,
            seed: 1,
        }
    }

    /// The most messages that may be outstanding and in receive queues at a time.
    pub fn on_their_way(&self) -> u64 {
        u64::from(self.producers) * u64::from(self.outstanding)
            + self.consumers as u64 * u64::from(self.receive_queue)
    }
}
