//! B5: the completion of a read, at once or through the ledger's thread.
//!
//! There is a driver and two serial executors, of the ledger and of the dispatcher. One operation: the driver gives the dispatcher a
//! task that makes a read; the read is completed where it is, or by the ledger; its result is then given to the driver from there, or
//! by a further task of the dispatcher. The driver waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use folio_completer::InlineCompleter;
use folio_sync::{Executor, Job, SerialExecutor};

use super::executors::{ChannelExecutor, OrderedWorker, Waiter};
use crate::runner::{Against, Block, Case, Metric, Row, Target};

const OPERATIONS: u64 = 2_000;

/// A read: its value and its continuation, whichever is there first.
#[derive(Default)]
enum State {
    #[default]
    Empty,
    Value(u64),
    Then(Box<dyn FnOnce(u64) + Send>),
}

#[derive(Default)]
struct Read(Mutex<State>);

impl Read {
    fn swap(&self, state: State) -> State {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), state)
    }

    fn complete(&self, value: u64) {
        if let State::Then(then) = self.swap(State::Value(value)) {
            then(value);
        }
    }

    fn then(&self, then: impl FnOnce(u64) + Send + 'static) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Value(value) = *state {
            drop(state);
            then(value);
        } else {
            *state = State::Then(Box::new(then));
        }
    }
}

/// Who completes a read.
#[derive(Clone)]
enum Completes {
    /// The thread that has it, without any bound.
    AtOnce,
    /// The ledger's thread: at once there, queued elsewhere.
    Ledger(Arc<dyn SerialExecutor>),
    /// Ours, by its policy.
    Completer(InlineCompleter),
}

impl Completes {
    fn complete(&self, read: Arc<Read>) {
        let completion = move || read.complete(7);
        let taken = match self {
            Self::AtOnce => {
                completion();
                true
            }
            Self::Ledger(ledger) if ledger.is_current() => {
                completion();
                true
            }
            Self::Ledger(ledger) => ledger.submit(Job::new(completion)).is_ok(),
            Self::Completer(completer) => completer.complete(completion).is_ok(),
        };
        assert!(taken, "the executors of a benchmark refuse nothing");
    }
}

/// The executors and policies of a case.
#[derive(Clone)]
struct Shape {
    dispatcher: Arc<dyn SerialExecutor>,
    completes: Completes,
    dispatcher_handoff: bool,
}

impl Shape {
    fn operation(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let (shape, waiter) = (Arc::clone(self), Arc::clone(waiter));
        let task = Job::new(move || {
            let read = Arc::new(Read::default());
            shape.completes.complete(Arc::clone(&read));
            read.then(move |_| {
                if shape.dispatcher_handoff {
                    submit(&*shape.dispatcher, Job::new(move || waiter.complete()));
                } else {
                    waiter.complete();
                }
            });
        });
        submit(&*self.dispatcher, task);
    }
}

fn submit(executor: &dyn Executor, job: Job) {
    executor.submit(job).expect("the executors of a benchmark refuse nothing");
}

fn case(name: &str, shape: Shape) -> Case {
    let shape = Arc::new(shape);
    Case::looped(name, OPERATIONS, move |turns| {
        let waiter = Arc::new(Waiter::new());
        for turn in 1..=turns {
            shape.operation(&waiter);
            waiter.wait(turn);
        }
    })
}

fn block_name(dispatcher_handoff: bool) -> String {
    format!("B5, dispatcher {}", if dispatcher_handoff { "hand-off" } else { "direct" })
}

const OURS_INLINE: &str = "InlineCompleter, inline";
const OURS_AFFINE: &str = "InlineCompleter, affine to the ledger";

fn block(dispatcher_handoff: bool) -> Block {
    let shape =
        |dispatcher: Arc<dyn SerialExecutor>, completes| Shape { dispatcher, completes, dispatcher_handoff };
    let ordered = || Arc::new(OrderedWorker::start());
    let channel = || Arc::new(ChannelExecutor::start());
    let inline = Completes::Completer(InlineCompleter::inline(OrderedWorker::start()));
    let affine = Completes::Completer(InlineCompleter::affine(OrderedWorker::start()));
    let mut at_once = case("channel executors, inline", shape(channel(), Completes::AtOnce));
    let mut by_ledger =
        case("channel executors, through the ledger", shape(channel(), Completes::Ledger(channel())));
    if !dispatcher_handoff {
        at_once = at_once.documented(Metric::Wall, 555.0);
        by_ledger = by_ledger.documented(Metric::Wall, 13_600.0);
    }
    Block::new(
        block_name(dispatcher_handoff),
        vec![
            case(OURS_INLINE, shape(ordered(), inline)),
            case(OURS_AFFINE, shape(ordered(), affine)),
            at_once,
            by_ledger,
        ],
    )
}

/// The rows of B5.
pub(super) fn blocks() -> [Block; 2] {
    [block(false), block(true)]
}

/// What is asked of them.
pub(super) fn targets() -> [Target; 2] {
    [false, true].map(|dispatcher_handoff| {
        let block = block_name(dispatcher_handoff);
        Target::lower(
            format!("{block}: inline, of the hand-off shape"),
            Row::case(&block, OURS_INLINE),
            Against::Row(Row::case(&block, OURS_AFFINE)),
            Metric::Wall,
            0.7,
            0.5,
        )
    })
}
