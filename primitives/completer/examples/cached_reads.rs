//! A chain of cached reads: where each callback runs, and how deep.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example runs on the standard library only"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use folio_completer::{
    Completion, DepthLimitSource, InlineCompleter, Policy, current_depth, depth_limit_source, refusable,
};
use folio_sync::{Executor, Job, RejectReason, Rejected, SerialExecutor};

/// The serial worker of a ledger: one thread and a queue.
#[derive(Clone)]
struct Worker {
    jobs: Sender<Job>,
    id: ThreadId,
}

impl Worker {
    fn start() -> Self {
        let (jobs, queue) = channel::<Job>();
        let thread = thread::Builder::new()
            .name("ledger worker".to_owned())
            .spawn(move || queue.into_iter().for_each(Job::run))
            .expect("one more thread fits");
        Self { jobs, id: thread.thread().id() }
    }
}

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs.send(job).map_err(|unsent| Rejected::new(unsent.0, RejectReason::Closed))
    }
}

impl SerialExecutor for Worker {
    fn is_current(&self) -> bool {
        thread::current().id() == self.id
    }
}

/// Entries that are all in memory, so that every read is answered at once.
struct Cache {
    entries: BTreeMap<u64, String>,
    completer: InlineCompleter,
}

impl Cache {
    /// Reads one entry; the callback may run before this returns.
    fn read(&self, id: u64, callback: impl FnOnce(Result<Option<String>, RejectReason>) + Send + 'static) {
        let found = self.entries.get(&id).cloned();
        let completion = refusable(
            (callback, found),
            |(callback, found)| callback(Ok(found)),
            |(callback, _found), reason| callback(Err(reason)),
        );
        // What comes back fails the read: the callback hears of it once, either way.
        if let Err(Rejected { value, reason }) = self.completer.complete(completion) {
            value.refused(reason);
        }
    }
}

/// A reader that asks for the next entry in the callback of the last.
struct Reader {
    cache: Arc<Cache>,
    state: Mutex<State>,
    done: Sender<()>,
}

#[derive(Default)]
struct State {
    pending: bool,
    runs: Vec<(String, u32, u64, u64)>,
}

fn read_from(reader: &Arc<Reader>, id: u64) {
    // Before it is asked: the answer may be there before `read` returns.
    reader.state.lock().expect("nothing panics under it").pending = true;
    let (again, depth_of_asker) = (Arc::clone(reader), current_depth());
    reader.cache.read(id, move |answer| {
        let mut state = again.state.lock().expect("nothing panics under it");
        state.pending = false;
        let thread = thread::current()
            .name()
            .map_or_else(|| "a worker of rayon's pool".to_owned(), |name| format!("thread {name:?}"));
        match state.runs.last_mut() {
            Some((same, deepest, _, last)) if *same == thread && current_depth() > depth_of_asker => {
                *deepest = (*deepest).max(current_depth());
                *last = id;
            }
            _ => state.runs.push((thread, current_depth(), id, id)),
        }
        // Unlocked before it asks again: the next callback may run inside.
        drop(state);
        match answer {
            Ok(Some(_entry)) => read_from(&again, id + 1),
            Ok(None) => again.done.send(()).expect("main waits"),
            Err(reason) => {
                println!("entry {id}: {reason}");
                again.done.send(()).expect("main waits");
            }
        }
    });
}

fn main() -> ExitCode {
    const ENTRIES: u64 = 35;
    let worker = Worker::start();
    for policy in [Policy::Inline, Policy::Affine] {
        let completer = InlineCompleter::builder(policy, worker.clone()).build();
        println!("{policy:?}, limit {} ({}):", completer.depth_limit(), told(depth_limit_source()));
        let cache =
            Cache { entries: (0..ENTRIES).map(|id| (id, format!("entry {id}"))).collect(), completer };
        let (done, end) = channel();
        let reader = Arc::new(Reader { cache: Arc::new(cache), state: Mutex::default(), done });
        read_from(&reader, 0);
        if end.recv().is_err() {
            return ExitCode::FAILURE;
        }
        let state = reader.state.lock().expect("nothing panics under it");
        for (thread, deepest, first, last) in &state.runs {
            println!("  reads {first:>2} to {last:>2} on {thread}, to depth {deepest}");
        }
        println!("  still pending: {}; queued: {}\n", state.pending, reader.cache.completer.counts().queued);
    }
    ExitCode::SUCCESS
}

fn told(source: DepthLimitSource) -> &'static str {
    match source {
        DepthLimitSource::Default => "the default",
        DepthLimitSource::Malformed => "the default, since the variable is malformed",
        _ => "from the environment",
    }
}
