//! Completions while a thread exits and its thread-local values go.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::cell::RefCell;
use std::thread;

use folio_completer::{Completed, InlineCompleter, Policy, current_depth};
use support::{Mailbox, Worker};

/// Asks when it is dropped: nested to the limit and one further.
struct AsksAtExit {
    completer: InlineCompleter,
    tell: Mailbox<(Completed, u32)>,
}

impl Drop for AsksAtExit {
    fn drop(&mut self) {
        ask(&self.completer, &self.tell);
        self.tell.put((Completed::Ran, current_depth()));
    }
}

fn ask(completer: &InlineCompleter, tell: &Mailbox<(Completed, u32)>) {
    let (next, told) = (completer.clone(), tell.clone());
    let limit = completer.depth_limit();
    let outcome = completer.complete(move || {
        let depth = current_depth();
        // The one that was queued, at depth one again, ends the chain.
        if depth <= limit && thread::current().name() == Some("exits") {
            ask(&next, &told);
        }
        told.put((Completed::Ran, depth));
    });
    tell.put((outcome.unwrap(), current_depth()));
}

thread_local! {
    static AT_EXIT: RefCell<Option<AsksAtExit>> = const { RefCell::new(None) };
    static LATER: RefCell<Option<AsksAtExit>> = const { RefCell::new(None) };
}

#[test]
fn completions_work_while_a_thread_exits() {
    for policy in [Policy::Inline, Policy::Affine] {
        let (worker, worker_thread) = Worker::start();
        let builder = InlineCompleter::builder(policy, worker.clone()).depth_limit(2);
        let completer = builder.overflow(worker.clone()).build();
        let told = Mailbox::new();
        let asks = || AsksAtExit { completer: completer.clone(), tell: told.clone() };
        let (one, other) = (asks(), asks());
        let exits = thread::Builder::new().name("exits".to_owned()).spawn(move || {
            // One is there before the counter is first used, the other after: in whichever order the values of a thread go.
            AT_EXIT.with_borrow_mut(|value| *value = Some(one));
            assert_eq!(current_depth(), 0);
            LATER.with_borrow_mut(|value| *value = Some(other));
        });
        exits.unwrap().join().unwrap();
        worker.ask(|| ());
        drop((worker, completer));
        worker_thread.join().unwrap();

        let mut events: Vec<_> = std::iter::from_fn(|| told.try_take()).collect();
        let queued = events.iter().filter(|(outcome, _)| *outcome == Completed::Queued).count();
        assert_eq!(queued, 2, "one of each value, {policy:?}: {events:?}");
        events.retain(|(_, depth)| *depth > 2);
        assert_eq!(events, [], "above the limit");
    }
}
