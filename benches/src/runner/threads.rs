//! Trials with several threads.

use std::sync::Barrier;
use std::thread;

use super::{Mark, Sample, sample_between};

/// Runs the bodies at once, each on a thread of its own, and measures from their common start until all have ended.
///
/// The start of the threads is not measured. `operations` is what all bodies do together.
///
/// # Panics
/// When a body panics.
pub fn together(operations: u64, bodies: Vec<Box<dyn FnOnce() + Send + '_>>) -> Sample {
    let start_line = Barrier::new(bodies.len() + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = bodies
            .into_iter()
            .map(|body| {
                let start_line = &start_line;
                scope.spawn(move || {
                    start_line.wait();
                    body();
                })
            })
            .collect();
        let start = Mark::now();
        start_line.wait();
        for thread in threads {
            thread.join().expect("a body of a trial does not panic");
        }
        sample_between(start, Mark::now(), operations)
    })
}
