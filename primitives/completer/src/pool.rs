//! The process's own pool, as the destination of overflow.

use folio_sync::{Job, unwind};

/// Whether jobs spawned from here would have more than one worker to run on.
///
/// Starts the global pool if nothing has yet; if it cannot start, that panic ends here.
pub(crate) fn usable() -> bool {
    matches!(unwind::catch(rayon::current_num_threads), Ok(workers) if workers > 1)
}

/// Spawns a job that no panic leaves.
///
/// # Errors
/// The job, when this thread belongs to a pool of one, or no pool is there: a single worker may be the one that waits.
pub(crate) fn spawn(job: Job) -> Result<(), Job> {
    if !usable() {
        return Err(job);
    }
    rayon::spawn_fifo(move || {
        if let Err(payload) = unwind::catch(|| job.run()) {
            // The job reported what its completion did; what is left is beyond reporting, and must not end the process.
            unwind::discard(payload);
        }
    });
    Ok(())
}
