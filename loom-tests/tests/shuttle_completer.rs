//! The completer under shuttle: chains of several threads, a pool and a worker that refuse now and then.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "tests unwrap also in their helpers")]

use folio_completer::{Completion, InlineCompleter, Policy, current_depth, refusable};
use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{ManualExecutor, Tracked, shuttle_check};
use folio_sync::{Arc, Rejected, thread};

const ASKERS: usize = 3;
const LENGTH: usize = 7;
const LIMIT: u32 = 2;

/// What all chains of an execution have in common.
struct System {
    completer: InlineCompleter,
    delivered: AtomicUsize,
    failed: AtomicUsize,
    ended: AtomicUsize,
}

impl System {
    fn ended(&self, failed: bool) {
        self.failed.fetch_add(usize::from(failed), Ordering::Relaxed);
        // Release: the chain's counts come before its end; pairs with the pumps' Acquire.
        self.ended.fetch_add(1, Ordering::Release);
    }
}

/// A completion that asks for the next; a chain ends delivered, or with its first refusal.
fn step(system: &Arc<System>, left: usize) -> impl Completion + use<> {
    refusable(
        (Arc::clone(system), Tracked::new(left)),
        |(system, left)| {
            assert!(current_depth() <= LIMIT);
            system.delivered.fetch_add(1, Ordering::Relaxed);
            if *left.get() == 1 { system.ended(false) } else { ask(&system, *left.get() - 1) }
        },
        |(system, left), _reason| {
            assert!(*left.get() > 0);
            system.ended(true);
        },
    )
}

fn ask(system: &Arc<System>, left: usize) {
    if let Err(Rejected { value, reason }) = system.completer.complete(step(system, left)) {
        value.refused(reason);
    }
}

/// Runs jobs until every chain has ended.
fn pump(executor: &ManualExecutor, system: &System) {
    // Acquire: sees what the chains counted; pairs with the Release of their ends.
    while system.ended.load(Ordering::Acquire) < ASKERS {
        if !executor.run_next() {
            thread::yield_now();
        }
    }
}

fn chains_end_once(name: &'static str, policy: Policy, refuse_every: usize) {
    shuttle_check(name, 200, move || {
        let (worker, pool) = (ManualExecutor::new(), ManualExecutor::new());
        worker.refuse_every(refuse_every);
        pool.refuse_every(refuse_every);
        let completer =
            InlineCompleter::builder(policy, worker.clone()).depth_limit(LIMIT).overflow(pool.clone());
        let system = Arc::new(System {
            completer: completer.build(),
            delivered: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        });
        let mut threads: Vec<_> = [worker.clone(), pool.clone()]
            .into_iter()
            .map(|executor| {
                let system = Arc::clone(&system);
                thread::spawn(move || pump(&executor, &system))
            })
            .collect();
        threads.extend((0..ASKERS).map(|_| {
            let system = Arc::clone(&system);
            thread::spawn(move || ask(&system, LENGTH))
        }));
        for thread in threads {
            thread.join().unwrap();
        }
        let (delivered, failed) =
            (system.delivered.load(Ordering::Relaxed), system.failed.load(Ordering::Relaxed));
        assert_eq!(system.ended.load(Ordering::Relaxed), ASKERS, "each chain ends once");
        if refuse_every == 0 {
            assert_eq!((delivered, failed), (ASKERS * LENGTH, 0));
        } else {
            assert!(
                delivered < ASKERS * LENGTH && failed > 0,
                "refusals came: {delivered} delivered, {failed} failed"
            );
        }
        assert_eq!((worker.queued(), pool.queued(), system.completer.counts().panics), (0, 0, 0));
    });
}

/// I24, I29: inline chains of several threads, a pool and a worker: each ends once, within the limit.
#[test]
fn inline_chains_end_once() {
    chains_end_once("inline chains", Policy::Inline, 0);
    chains_end_once("inline chains, refused now and then", Policy::Inline, 3);
}

/// I24, I29: affine chains of several threads and one worker: each ends once, within the limit.
#[test]
fn affine_chains_end_once() {
    chains_end_once("affine chains", Policy::Affine, 0);
    chains_end_once("affine chains, refused now and then", Policy::Affine, 3);
}
