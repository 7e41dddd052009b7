//! Jobs, rejections and the executor traits.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor, SharedJob, arc_dyn, unwind};

/// Counts what happens to its submissions.
#[derive(Default)]
struct Counted {
    ran: AtomicUsize,
    abandoned: AtomicUsize,
    panics: bool,
}

struct Handle(Arc<Counted>);

impl SharedJob for Handle {
    fn run(&self, _this: &Arc<dyn SharedJob>) {
        self.0.ran.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0.panics, "told to");
    }

    fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
        self.0.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted(panics: bool) -> (Arc<Counted>, Arc<dyn SharedJob>) {
    let counted = Arc::new(Counted { panics, ..Counted::default() });
    (Arc::clone(&counted), arc_dyn!(Handle(counted) => dyn SharedJob))
}

fn counts(counted: &Counted) -> (usize, usize) {
    (counted.ran.load(Ordering::Relaxed), counted.abandoned.load(Ordering::Relaxed))
}

#[test]
fn a_shared_job_runs_once_a_submission() {
    let (counted, job) = counted(false);
    for _ in 0..3 {
        Job::shared(Arc::clone(&job)).run();
    }
    assert_eq!(counts(&counted), (3, 0));
    assert_eq!(Arc::strong_count(&job), 1, "no submission is left");
}

#[test]
fn a_shared_job_that_is_dropped_tells_its_owner_once() {
    let (counted, job) = counted(false);
    drop(Job::shared(Arc::clone(&job)));
    assert_eq!(counts(&counted), (0, 1));
    assert_eq!(Arc::strong_count(&job), 1);
}

#[test]
fn a_forgotten_job_tells_nobody_and_frees_what_it_held() {
    let (counted, job) = counted(false);
    Job::shared(Arc::clone(&job)).forget();
    assert_eq!(counts(&counted), (0, 0));
    assert_eq!(Arc::strong_count(&job), 1);

    let held = Arc::new(());
    let captured = Arc::clone(&held);
    Job::new(move || drop(captured)).forget();
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn a_job_that_panics_has_run_and_is_not_abandoned() {
    let (counted, job) = counted(true);
    let payload = unwind::catch(|| Job::shared(Arc::clone(&job)).run()).unwrap_err();
    assert_eq!(unwind::message(&*payload), "told to");
    assert_eq!(counts(&counted), (1, 0));
    assert_eq!(Arc::strong_count(&job), 1);
}

#[test]
fn a_shared_job_can_submit_itself_again_from_its_handle() {
    struct Countdown {
        left: Arc<AtomicUsize>,
    }

    impl SharedJob for Countdown {
        fn run(&self, this: &Arc<dyn SharedJob>) {
            if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
                Job::shared(Arc::clone(this)).run();
            }
        }

        fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
            unreachable!("every submission runs");
        }
    }

    let left = Arc::new(AtomicUsize::new(5));
    let handle = arc_dyn!(Countdown { left: Arc::clone(&left) } => dyn SharedJob);
    Job::shared(handle).run();
    assert_eq!(left.load(Ordering::Relaxed), 0);
}

#[test]
fn jobs_and_rejections_say_what_they_are_without_their_content() {
    let (_counted, shared) = counted(false);
    assert_eq!(format!("{:?}", Job::new(|| ())), "Job::Boxed");
    let job = Job::shared(shared);
    assert_eq!(format!("{job:?}"), "Job::Shared");
    let rejected = Rejected::new(job, RejectReason::Full);
    assert_eq!(format!("{rejected}"), "not taken: the queue is full");
    assert_eq!(format!("{rejected:?}"), "Rejected { reason: Full, .. }");
    assert!((&rejected as &dyn Error).source().is_none());
    rejected.into_inner().forget();
    for (reason, text) in [(RejectReason::Closed, "closed"), (RejectReason::Refused, "refused")] {
        assert_eq!(reason.to_string(), text);
    }
}

#[test]
fn mapping_a_rejection_keeps_its_reason() {
    let rejected = Rejected::new(7, RejectReason::Closed).map(|value| value + 1);
    assert!(rejected == Rejected::new(8, RejectReason::Closed));
}

/// Refuses everything and is current everywhere.
struct Unwilling;

impl Executor for Unwilling {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        Err(Rejected::new(job, RejectReason::Refused))
    }
}

impl SerialExecutor for Unwilling {
    fn is_current(&self) -> bool {
        true
    }
}

#[test]
fn a_rejected_caller_gets_the_same_job_back_also_through_an_arc() {
    let executor: Arc<dyn SerialExecutor> = arc_dyn!(Unwilling => dyn SerialExecutor);
    assert!(executor.is_current());
    let (counted, job) = counted(false);
    let rejected = executor.submit(Job::shared(Arc::clone(&job))).unwrap_err();
    assert_eq!(counts(&counted), (0, 0), "neither run nor dropped");
    let rejected = executor.resubmit(rejected.into_inner()).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::Refused);
    rejected.into_inner().run();
    assert_eq!(counts(&counted), (1, 0));
}
