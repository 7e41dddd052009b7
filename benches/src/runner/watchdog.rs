//! The hang detector.

use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The exit code of a process whose case hung.
pub const HANG_EXIT_CODE: i32 = 3;

struct State {
    /// The trial that runs, and since when.
    running: Option<(String, Instant)>,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that notices a trial which does not end.
///
/// It looks now and then instead of being told of each trial, so that it takes no time from one.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Ends the process with [`HANG_EXIT_CODE`] when a trial takes longer than `limit`, and says which.
    pub fn exiting(limit: Duration) -> Self {
        Self::start(limit, move |case| {
            eprintln!("hang: {case} has not ended within {limit:?}");
            process::exit(HANG_EXIT_CODE);
        })
    }

    /// Calls `on_hang` once for each trial that takes longer than `limit`.
    ///
    /// # Panics
    /// When no thread can be started.
    pub fn start(limit: Duration, on_hang: impl Fn(&str) + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { running: None, stopping: false }),
            stop: Condvar::new(),
        });
        let watched = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || look(&watched, limit, &on_hang))
            .expect("the system starts one more thread");
        Self { shared, thread: Some(thread) }
    }

    /// Watches one trial until the returned value is dropped.
    pub fn watch(&self, case: impl Into<String>) -> Watched<'_> {
        self.shared.lock().running = Some((case.into(), Instant::now()));
        Watched { watchdog: self }
    }
}

fn look(shared: &Shared, limit: Duration, on_hang: &dyn Fn(&str)) {
    let pause = (limit / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let mut state = shared.lock();
    while !state.stopping {
        let hung = state.running.take_if(|(_, since)| since.elapsed() > limit);
        if let Some((case, _)) = hung {
            drop(state);
            on_hang(&case);
            state = shared.lock();
            continue;
        }
        (state, _) = shared.stop.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread panics only if `on_hang` did, and then it has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

/// A trial under watch; dropped when it ends.
#[derive(Debug)]
#[must_use = "the watch ends when this is dropped"]
pub struct Watched<'a> {
    watchdog: &'a Watchdog,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watchdog.shared.lock().running = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_trial_that_does_not_end_is_named() {
        let (tell, told) = mpsc::channel();
        let watchdog =
            Watchdog::start(Duration::from_millis(10), move |case| tell.send(case.to_owned()).unwrap());
        let trial = watchdog.watch("block/stuck");
        assert_eq!(told.recv_timeout(Duration::from_secs(30)).unwrap(), "block/stuck");
        drop(trial);
    }

    #[test]
    fn trials_that_end_in_time_are_not_reported() {
        let (tell, told) = mpsc::channel();
        let watchdog =
            Watchdog::start(Duration::from_mins(1), move |case| tell.send(case.to_owned()).unwrap());
        for _ in 0..100 {
            drop(watchdog.watch("block/quick"));
        }
        drop(watchdog);
        assert!(told.recv().is_err(), "nothing was reported before the watchdog went");
    }
}
