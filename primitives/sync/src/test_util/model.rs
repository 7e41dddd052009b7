//! The one way in which models are run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[cfg(loom)]
use super::tracked::register;
use super::{addresses, inject};

/// The fewest executions below which a model is taken to see nothing.
const FEWEST: u64 = 20;

/// The preemption bound that gates.
const BOUND: usize = 3;

/// One model: a body that loom runs under every schedule up to a bound.
///
/// There under `--cfg loom` only. `FOLIO_LOOM_BOUND` sets a larger bound than 3 for a longer hunt.
///
/// ```
/// use folio_sync::atomic::{AtomicUsize, Ordering};
/// use folio_sync::test_util::Model;
/// use folio_sync::{Arc, thread};
///
/// Model::new("two additions").few_executions("one word, one operation a thread").check(|| {
///     let count = Arc::new(AtomicUsize::new(0));
///     let other = Arc::clone(&count);
///     let thread = thread::spawn(move || other.fetch_add(1, Ordering::Relaxed));
///     count.fetch_add(1, Ordering::Relaxed);
///     thread.join().unwrap();
///     assert_eq!(count.load(Ordering::Relaxed), 2);
/// });
/// ```
#[derive(Debug)]
pub struct Model {
    name: &'static str,
    bound: usize,
    few: Option<&'static str>,
    steps: bool,
}

impl Model {
    /// A model of this name at the gating bound.
    ///
    /// # Panics
    /// When the environment caps loom's time or permutations or sets a bound below 3: such a run proves nothing.
    pub fn new(name: &'static str) -> Self {
        for cap in ["LOOM_MAX_DURATION", "LOOM_MAX_PERMUTATIONS", "LOOM_CHECKPOINT_FILE"] {
            assert!(std::env::var_os(cap).is_none(), "{cap} is set: a capped model proves nothing");
        }
        let bound = match std::env::var("FOLIO_LOOM_BOUND") {
            Ok(text) => text.parse().expect("FOLIO_LOOM_BOUND is a number"),
            Err(_) => BOUND,
        };
        assert!(bound >= BOUND, "FOLIO_LOOM_BOUND is {bound}: below {BOUND} real faults stay hidden");
        Self { name, bound, few: None, steps: false }
    }

    /// Accepts fewer than 20 executions, for the reason given.
    #[must_use]
    pub fn few_executions(mut self, why: &'static str) -> Self {
        self.few = Some(why);
        self
    }

    /// Also explores every order of the steps that are named by [`step!`](crate::step), within the bound.
    ///
    /// Loom reverses two accesses only if it remembers both, and of each word it remembers the last access alone: where two threads
    /// load a word and then one of them stores to it, it never runs that store before the other's load. Steps make up for that, at the
    /// price of many more executions.
    #[must_use]
    pub fn at_every_step(mut self) -> Self {
        self.steps = true;
        self
    }

    /// Runs the model to its end and prints how many executions that took.
    ///
    /// # Panics
    /// When an execution fails, or when there were fewer than 20 without a reason.
    pub fn check(self, body: impl Fn() + Send + Sync + 'static) {
        let executions = std::sync::Arc::new(AtomicU64::new(0));
        let counted = std::sync::Arc::clone(&executions);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.bound);
        builder.max_permutations = None;
        builder.max_duration = None;
        builder.checkpoint_file = None;
        builder.max_branches = 20_000;
        let began = Instant::now();
        let steps = self.steps;
        let failing = Failing { name: self.name, executions: std::sync::Arc::clone(&executions) };
        builder.check(move || {
            // Relaxed: a count that publishes nothing; all executions run on this thread.
            counted.fetch_add(1, Ordering::Relaxed);
            // An execution that failed may have left its injection and its values behind.
            addresses::reset();
            inject::reset();
            register::reset();
            pulse::reset(steps);
            body();
        });
        drop(failing);
        // Relaxed: as above.
        let executions = executions.load(Ordering::Relaxed);
        println!(
            "model {}: {executions} executions, complete at bound {}, {:.1} s{}",
            self.name,
            self.bound,
            began.elapsed().as_secs_f64(),
            self.few.map(|why| format!(" (few: {why})")).unwrap_or_default(),
        );
        assert!(
            executions >= FEWEST || self.few.is_some(),
            "model {}: {executions} executions see nothing; fewer than {FEWEST} need a reason",
            self.name
        );
    }
}

/// Tells which model failed, and when.
struct Failing {
    name: &'static str,
    executions: std::sync::Arc<AtomicU64>,
}

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Relaxed: all executions run on this thread.
            println!("model {} fails in execution {}", self.name, self.executions.load(Ordering::Relaxed));
        }
    }
}

/// Runs a model at the gating bound: see [`Model::check`].
///
/// There under `--cfg loom` only.
///
/// # Panics
/// As [`Model::check`].
pub fn model(name: &'static str, body: impl Fn() + Send + Sync + 'static) {
    Model::new(name).check(body);
}

/// What makes loom try every order of named steps: each of them is an operation on one word that all share.
#[cfg(loom)]
pub(crate) mod pulse {
    use std::cell::Cell;

    use loom::sync::atomic::{AtomicUsize, Ordering};

    // A checker runs all threads of one execution on one thread of the system.
    std::thread_local! {
        static ON: Cell<bool> = const { Cell::new(false) };
    }

    loom::lazy_static! {
        static ref PULSE: AtomicUsize = AtomicUsize::new(0);
    }

    /// Begins an execution; the word is made before there are threads that its making could order.
    pub(super) fn reset(on: bool) {
        ON.set(on);
        beat();
    }

    /// One step.
    pub(crate) fn beat() {
        if ON.get() {
            // Relaxed: orders no memory; that it is a read-modify-write makes any two of them dependent.
            PULSE.fetch_add(1, Ordering::Relaxed);
        }
    }
}
