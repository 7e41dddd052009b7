//! Completions that are not taken, dropped, or find no thread.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_completer::{Completed, Completion, InlineCompleter, Policy, current_depth, refusable};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Arc, RejectReason, Rejected};
use support::{Always, Does, count};

/// A read that holds a buffer, and the record of how it ended.
#[derive(Clone)]
struct Read {
    buffer: Arc<[u8; 64]>,
    ends: Arc<Mutex<Vec<Result<(), RejectReason>>>>,
}

impl Read {
    fn new() -> Self {
        Self { buffer: Arc::new([7; 64]), ends: Arc::default() }
    }

    fn completion(&self) -> impl Completion {
        refusable(
            self.clone(),
            |read| read.ends.lock().unwrap().push(Ok(())),
            |read, reason| read.ends.lock().unwrap().push(Err(reason)),
        )
    }

    /// Asserts that it ended once, in this way, and that nobody holds its buffer.
    fn assert_ended(&self, end: Result<(), RejectReason>) {
        assert_eq!(*self.ends.lock().unwrap(), [end]);
        assert_eq!(Arc::strong_count(&self.buffer), 1, "the buffer is released");
    }
}

/// Asks, and fails the read if it comes back.
fn ask(completer: &InlineCompleter, read: &Read) -> Option<Completed> {
    match completer.complete(read.completion()) {
        Ok(outcome) => Some(outcome),
        Err(Rejected { value, reason }) => {
            value.refused(reason);
            None
        }
    }
}

/// 1.13, 4.7, I24, R5: affine and off its worker, a refused read is released and fails once, after one attempt.
#[test]
fn an_affine_read_that_is_refused_fails_once() {
    let worker = Always::new(Does::Refuse);
    let (completer, read) = (InlineCompleter::affine(worker.clone()), Read::new());
    assert_eq!(ask(&completer, &read), None);
    read.assert_ended(Err(RejectReason::Full));
    assert_eq!((worker.attempts(), current_depth()), (1, 0));
}

/// 1.13, 4.7, I24, R5: in both modes a read that is refused at the limit is released and fails once, after one attempt.
#[test]
fn a_read_that_is_refused_at_the_limit_fails_once() {
    let worker = Always::new(Does::Refuse).current();
    let overflow = Always::new(Does::Refuse);
    let affine = InlineCompleter::builder(Policy::Affine, worker.clone()).depth_limit(3).build();
    let inline = InlineCompleter::builder(Policy::Inline, worker.clone())
        .depth_limit(3)
        .overflow(overflow.clone())
        .build();
    for (completer, tried, other) in [(affine, &worker, &overflow), (inline, &overflow, &worker)] {
        let (before, read) = (other.attempts(), Read::new());
        at_depth(&completer, 3, &read);
        read.assert_ended(Err(RejectReason::Full));
        assert_eq!(tried.attempts(), 1, "one executor is tried, once");
        assert_eq!(other.attempts(), before, "and no other");
        assert_eq!((completer.counts().queued, completer.counts().refused, current_depth()), (0, 0, 0));
    }
}

/// Asks inside `depth` completions.
fn at_depth(completer: &InlineCompleter, depth: u32, read: &Read) {
    if depth == 0 {
        ask(completer, read);
        return;
    }
    let (inner, nested) = (completer.clone(), read.clone());
    assert_eq!(completer.complete(move || at_depth(&inner, depth - 1, &nested)).unwrap(), Completed::Ran);
}

/// R5: a closure comes back as it was, and can still be run.
#[test]
fn a_closure_that_is_refused_comes_back_whole() {
    let completer = InlineCompleter::affine(Always::new(Does::Refuse));
    let words = vec!["kept"];
    let refused = completer.complete(move || assert_eq!(words, ["kept"])).unwrap_err();
    assert_eq!(refused.reason, RejectReason::Full);
    (refused.into_inner())();
}

/// R5: what a closure captured is dropped with it, once.
#[test]
fn a_closure_that_is_dropped_unrun_releases_what_it_captured() {
    let worker = ManualExecutor::new();
    let (completer, buffer) = (InlineCompleter::affine(worker.clone()), Arc::new(()));
    let held = Arc::clone(&buffer);
    assert_eq!(completer.complete(move || drop(held)).unwrap(), Completed::Queued);
    assert_eq!(Arc::strong_count(&buffer), 2);
    drop(worker.take_next());
    assert_eq!((Arc::strong_count(&buffer), completer.counts().refused), (1, 1));
}

/// I24: a read whose job is dropped unrun fails once.
#[test]
fn a_queued_read_that_is_dropped_fails_once() {
    for does in [None, Some(Does::Drop)] {
        let queue = ManualExecutor::new();
        let completer = match does {
            None => InlineCompleter::affine(queue.clone()),
            Some(does) => InlineCompleter::affine(Always::new(does)),
        };
        let read = Read::new();
        assert_eq!(ask(&completer, &read), Some(Completed::Queued));
        drop(queue.take_next());
        read.assert_ended(Err(RejectReason::Closed));
        assert_eq!(completer.counts().refused, 1);
    }
}

/// I24, R5: a read that lands at the limit and is refused by the serial executor there fails once.
#[test]
fn a_read_that_is_refused_on_its_second_way_fails_once() {
    let worker = Always::new(Does::Refuse);
    let overflow = Always::new(Does::RunInside);
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone())
        .depth_limit(1)
        .overflow(overflow.clone())
        .build();
    let read = Read::new();
    at_depth(&completer, 1, &read);
    read.assert_ended(Err(RejectReason::Full));
    let counts = completer.counts();
    assert_eq!((counts.landed_at_limit, counts.refused), (1, 1));
    assert_eq!((overflow.attempts(), worker.attempts()), (1, 1));
}

/// I24: where no executor leaves the thread, the read is refused after a bounded number of tries.
#[test]
fn a_read_that_never_leaves_the_thread_fails_once() {
    let worker = Always::new(Does::RunInside);
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone())
        .depth_limit(2)
        .overflow(worker.clone())
        .build();
    let read = Read::new();
    at_depth(&completer, 2, &read);
    read.assert_ended(Err(RejectReason::Refused));
    assert_eq!((worker.attempts(), completer.counts().landed_at_limit), (16, 16));
    assert_eq!((completer.counts().refused, current_depth()), (1, 0));
}

/// I24: an executor that runs a job and refuses it all the same does not end it twice.
#[test]
fn a_read_that_is_run_and_refused_ends_once() {
    let worker = Always::new(Does::RunAndRefuse);
    let (completer, read) = (InlineCompleter::affine(worker), Read::new());
    assert_eq!(ask(&completer, &read), Some(Completed::Queued));
    read.assert_ended(Ok(()));
}

/// I24, I29: an executor that panics leaves the read failed once, and the depth as it was.
#[test]
fn a_read_whose_executor_panics_fails_once() {
    let (completer, read) = (InlineCompleter::affine(Always::new(Does::Panic)), Read::new());
    let thrown = folio_sync::unwind::catch(|| ask(&completer, &read));
    assert_eq!(folio_sync::unwind::message(&*thrown.unwrap_err()), "the executor broke");
    read.assert_ended(Err(RejectReason::Closed));

    // On the second way nobody is there to be thrown at: it is reported.
    let completer = InlineCompleter::builder(Policy::Inline, Always::new(Does::Panic))
        .depth_limit(1)
        .overflow(Always::new(Does::RunInside))
        .build();
    let read = Read::new();
    at_depth(&completer, 1, &read);
    read.assert_ended(Err(RejectReason::Closed));
    assert_eq!((completer.counts().panics, completer.counts().refused, current_depth()), (1, 1, 0));
}

/// 1.13, I24, bug 19: a panic counts as delivered wherever the completion ran, and is not a second end.
#[test]
fn a_read_that_panics_counts_as_delivered() {
    let worker = ManualExecutor::new();
    let sunk = Arc::new(AtomicUsize::new(0));
    for policy in [Policy::Inline, Policy::Affine] {
        let heard = Arc::clone(&sunk);
        let completer =
            InlineCompleter::builder(policy, worker.clone()).on_panic(move |_| count(&heard)).build();
        let (buffer, refused) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
        let (held, failed) = (Arc::clone(&buffer), Arc::clone(&refused));
        let read = refusable(held, |_held| panic!("on purpose"), move |_held, _| count(&failed));
        let outcome = completer.complete(read).unwrap();
        let expected = if policy == Policy::Inline { Completed::Panicked } else { Completed::Queued };
        assert_eq!((outcome, worker.run_all()), (expected, usize::from(policy == Policy::Affine)));
        assert_eq!((Arc::strong_count(&buffer), refused.load(Ordering::Relaxed)), (1, 0));
        assert_eq!((completer.counts().panics, completer.counts().refused), (1, 0));
    }
    assert_eq!(sunk.load(Ordering::Relaxed), 2);
}

/// A panic's payload that panics again, unless that would end the process.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Of no size: the payload that must be forgotten leaks no memory.
            std::panic::panic_any(Self);
        }
    }
}

/// I24: a failure path that panics, and a sink that panics too, end in the completer.
#[test]
fn panics_of_the_failure_path_and_of_the_sink_are_contained() {
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Affine, worker.clone())
        .on_panic(|_| std::panic::panic_any(PanicsAgain))
        .build();
    completer.complete(refusable((), |()| (), |(), _| panic!("on purpose"))).unwrap();
    drop(worker.take_next());
    assert_eq!((completer.counts().refused, completer.counts().panics), (1, 1));
}

#[test]
fn the_value_of_a_refusable_completion_can_be_had_back() {
    let read = refusable(7, |_| (), |_, _| ());
    assert_eq!(format!("{read:?}"), "Refusable { value: 7, .. }");
    assert_eq!(read.into_value(), 7);
}
