//! Histories of submissions: what ran in which order, and when each task was submitted.

use std::sync::atomic::{AtomicU64, Ordering};

/// When the submission of one task began and when it returned, by one clock that ticks with every event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submission {
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

impl Submission {
    /// Whether this one had returned before the other began.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        self.ended < other.began
    }
}

/// The clock of a history, and what it has seen.
pub(crate) struct Recorder {
    clock: AtomicU64,
    /// The two stamps of each task.
    stamps: Vec<[AtomicU64; 2]>,
}

impl Recorder {
    /// For tasks with numbers below `tasks`.
    pub(crate) fn new(tasks: usize) -> Self {
        Self { clock: AtomicU64::new(1), stamps: (0..tasks).map(|_| Default::default()).collect() }
    }

    /// Does what submits a task, between its two stamps.
    pub(crate) fn submit(&self, task: usize, submit: impl FnOnce()) {
        let [began, ended] = &self.stamps[task];
        // AcqRel: a stamp is greater than all that happened before it, and what follows a greater stamp comes after it.
        began.store(self.clock.fetch_add(1, Ordering::AcqRel), Ordering::Relaxed);
        submit();
        ended.store(self.clock.fetch_add(1, Ordering::AcqRel), Ordering::Relaxed);
    }

    /// The submissions of the tasks that ran, in the order in which they ran; for when all threads are joined.
    pub(crate) fn history(&self, ran: &[usize]) -> Vec<Submission> {
        ran.iter()
            .map(|&task| {
                let [began, ended] = self.stamps[task].each_ref().map(|stamp| stamp.load(Ordering::Relaxed));
                assert!(0 < began && began < ended, "task {task} was submitted");
                Submission { began, ended }
            })
            .collect()
    }
}

/// Checks that a history, in the order in which its tasks ran, is that of a queue whose submissions take effect at one moment each.
///
/// That is so if and only if no task ran after one whose submission began when its own had returned.
///
/// # Errors
/// The position of the first task that ran too late.
pub(crate) fn check_order(history: &[Submission]) -> Result<(), usize> {
    let mut latest_began = 0;
    for (position, submission) in history.iter().enumerate() {
        if submission.ended < latest_began {
            return Err(position);
        }
        latest_began = latest_began.max(submission.began);
    }
    Ok(())
}

/// How many submissions overlapped another one, each with a partner of its own.
///
/// One that stood still while thousands came and went counts once, and so does its partner.
pub(crate) fn overlapping(history: &[Submission]) -> usize {
    let mut by_beginning = history.to_vec();
    by_beginning.sort_unstable_by_key(|submission| submission.began);
    let mut alone: Option<Submission> = None;
    let mut pairs = 0;
    for submission in by_beginning {
        match alone {
            Some(earlier) if submission.began < earlier.ended => {
                pairs += 1;
                alone = None;
            }
            _ => alone = Some(submission),
        }
    }
    2 * pairs
}
