//! Where a run takes place: its threads, its cache and its topic.

use std::sync::Arc;

use bytes::Bytes;
use folio_broker::Topic;
use folio_executor::OrderedExecutor;
use folio_ledger::{CacheManager, CacheOptions, LedgerOptions, MemoryStorage, Policy};
use folio_sync::Executor;
use folio_sync::time::SystemClock;
use folio_sync::timers::ThreadTimers;

use crate::producers::{Publishes, Token};
use crate::run::RunError;
use crate::settings::{Cache, Completion, Handover, Settings};
use crate::stored::{self, Folder};

/// The threads of a run beside the producers'.
pub(crate) struct Pools {
    pub(crate) ledger: OrderedExecutor,
    pub(crate) dispatch: OrderedExecutor,
    pub(crate) consumers: OrderedExecutor,
    eviction: OrderedExecutor,
}

impl Pools {
    pub(crate) fn start(settings: &Settings) -> Result<Self, RunError> {
        let pool = |name: &str, threads| OrderedExecutor::builder().name(name).threads(threads).build();
        Ok(Self {
            ledger: pool("ledger", 1)?,
            dispatch: pool("dispatch", 1)?,
            consumers: pool("consumer", settings.consumer_threads)?,
            eviction: pool("eviction", 1)?,
        })
    }

    pub(crate) fn end(self) {
        for pool in [self.ledger, self.dispatch, self.consumers, self.eviction] {
            // Nothing is left to run, and this is none of their threads.
            let _left = pool.join();
        }
    }
}

/// Opens the topic of a run; with the folder that it has its files in, if it has any, which goes after it.
pub(crate) fn open_topic(
    settings: &Settings,
    pools: &Pools,
    clock: &Arc<SystemClock>,
    publishes: &Publishes,
) -> Result<(Option<Folder>, Topic<Token>), RunError> {
    let mut options = LedgerOptions {
        completion: match settings.completion {
            Completion::Inline => Policy::Inline,
            Completion::Affine => Policy::Affine,
        },
        ..LedgerOptions::default()
    };
    if settings.handover == Handover::Single {
        options.handover = folio_ledger::Handover::Single;
    }
    let worker = pools.ledger.workers()[0].clone();
    let evicts = pools.eviction.workers()[0].clone();
    let cache = cache(clock, evicts, settings.cache)?;
    let publishes = publishes.clone();
    let (folder, opened) = match stored::open(settings)? {
        None => (None, Topic::open(options, MemoryStorage::new(), &cache, worker, publishes)),
        Some((stored, folder)) => (Some(folder), Topic::open(options, stored, &cache, worker, publishes)),
    };
    Ok((folder, opened.map_err(|error| RunError::Settings(error.to_string()))?))
}

/// What caches; its passes run on this executor.
pub(crate) fn cache(
    clock: &Arc<SystemClock>,
    passes: impl Executor + 'static,
    cache: Cache,
) -> Result<CacheManager<Bytes>, RunError> {
    let mut options = CacheOptions::default();
    if cache == Cache::None {
        options.budget = 0;
    }
    CacheManager::new(options, passes, ThreadTimers::new(), Arc::clone(clock))
        .map_err(|error| RunError::Settings(error.to_string()))
}
