//! A small replicator whose read owner is a turn, and the races that the turn decides.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod ends;
mod model;
mod reads;
mod tasks;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use folio_sync::unwind::catch;
use model::Replicator;
use tasks::{Planted, State};

/// A replicator that is checked at its end: nothing held, everything released, never nested.
struct Rig(Arc<Replicator>);

impl Rig {
    fn new() -> Self {
        Self::with_budget(64)
    }

    fn with_budget(budget: u32) -> Self {
        Self(Replicator::new(budget, Planted::Nothing))
    }

    fn with_fault(planted: Planted) -> Self {
        Self(Replicator::new(64, planted))
    }

    /// Cached batches of these sizes.
    fn cache(&self, batches: impl IntoIterator<Item = usize>) {
        self.world.cursor.lock().cached.extend(batches);
    }

    fn on_send(&self, hook: impl Fn(&Arc<Replicator>, u64) + Send + Sync + 'static) {
        let weak = Arc::downgrade(&self.0);
        let hook = move |position| hook(&weak.upgrade().expect("alive"), position);
        self.world.producer.lock().on_send = Some(Arc::new(hook));
    }

    /// The producer completes each send inside the call.
    fn complete_sends(&self) {
        self.on_send(|replicator, position| replicator.on_sent(position, true));
    }

    fn hook(&self, act: impl FnOnce(&Arc<Replicator>) + Send + 'static) -> world::Hook {
        let weak = Arc::downgrade(&self.0);
        Box::new(move || act(&weak.upgrade().expect("alive")))
    }

    fn set_state(&self, state: State) {
        self.monitor.lock().state = state;
    }

    fn has_timer(&self) -> bool {
        self.monitor.lock().timer
    }

    /// A read is under way and has not come back.
    fn reading(&self) {
        self.read_more();
        assert!(self.world.is_pending());
    }
}

impl std::ops::Deref for Rig {
    type Target = Arc<Replicator>;

    fn deref(&self) -> &Arc<Replicator> {
        &self.0
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.executor.queued(), 0, "a turn is left queued");
            assert_eq!(self.world.live(), 0, "an entry is left unreleased");
            assert!(self.world.deepest.load(Ordering::Relaxed) <= 1, "cursor callbacks nested");
            assert!(self.executor.take_blocked().is_empty());
            assert_eq!(self.monitor.lock().rewind_holds, 0);
        }
        self.forget_turn();
        let mut cursor = self.world.cursor.lock();
        drop((cursor.pending.take(), cursor.before_read.take(), cursor.after_read.take()));
    }
}

type Race = fn(Planted);

/// 11.6: without what each of three races is about, exactly that race is lost: the negative controls.
#[test]
fn each_race_is_lost_without_what_it_is_about() {
    let races: [(&str, Race); 4] = [
        ("8", reads::race_8),
        ("11", ends::race_11),
        ("12, started", |planted| reads::race_12(State::Started, planted)),
        ("12, disconnected", |planted| reads::race_12(State::Disconnected, planted)),
    ];
    for (planted, lost) in [
        (Planted::Nothing, None),
        (Planted::NoShortcutWhilePending, Some("8")),
        (Planted::StartErrorEscapes, Some("11")),
        (Planted::NoRewindWhileDisconnected, Some("12, disconnected")),
    ] {
        for (name, race) in races {
            let held = catch(|| race(planted)).is_ok();
            assert_eq!(held, lost != Some(name), "race {name} with {planted:?}");
        }
    }
}
