//! Many threads ask for work that exactly one of them does at a time.
//!
//! A [`Turn`] owns a state. Any thread *records* demand on it: a few bits that say what is wanted. Whoever then *joins* runs the turn's
//! steps here if nobody does already; whoever may not run them *schedules* the turn on an executor instead. While one thread
//! takes steps, the others only leave their bits, and the owner looks at them before it lets go. After a budget of steps it yields
//! through an executor and keeps ownership meanwhile, so that nothing can come between.
//!
//! Known as: strand, serial drain loop with a work-in-progress counter.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::sync::Arc;
//!
//! use folio_sync::test_util::ManualExecutor;
//! use folio_turn::{Demand, Next, Stranded, Turn, Work};
//!
//! const MORE: Demand = Demand::soft(0);
//!
//! /// Adds up what is in the mailbox; the sum needs no lock, since only the owner reaches it.
//! struct Sum {
//!     mailbox: Arc<AtomicU32>,
//!     sum: u32,
//! }
//!
//! impl Work for Sum {
//!     fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
//!         if demand.contains(MORE) {
//!             self.sum += self.mailbox.swap(0, Ordering::Relaxed);
//!             println!("the sum is {}", self.sum);
//!         }
//!         Next::Idle
//!     }
//!
//!     fn stranded(stranded: Stranded<Self>) {
//!         // The executor is gone. Let go: what was asked stays recorded, for the next who joins.
//!         drop(stranded.ownership);
//!     }
//! }
//!
//! let mailbox = Arc::new(AtomicU32::new(0));
//! let executor = ManualExecutor::new();
//! let turn = Turn::builder(Sum { mailbox: Arc::clone(&mailbox), sum: 0 }).yield_to(executor.clone());
//!
//! // The data first, then the demand, then the call: run it here, if nobody does.
//! mailbox.fetch_add(3, Ordering::Relaxed);
//! if turn.record(MORE).must_run() {
//!     turn.join()?;
//! }
//!
//! // A thread that must not run the work queues it; for any number of demands once.
//! for _ in 0..5 {
//!     mailbox.fetch_add(1, Ordering::Relaxed);
//!     if turn.record(MORE).must_run() {
//!         turn.schedule(&executor)?;
//!     }
//! }
//! assert_eq!(executor.run_all(), 1);
//! # Ok::<(), Stranded<Sum>>(())
//! ```
//!
//! # Guarantees
//! * **One owner.** At most one thread or queued job owns the turn at a time. The state is reached by the owner alone, as `&mut`, and no
//!   lock is held while a step runs. Ownership survives yields.
//! * **No demand is lost.** Demand that is recorded while an owner runs or is queued is given to one of its steps before it lets go, and
//!   schedules nothing. What a thread did before it recorded is visible to that step.
//! * **The wait.** A step that says [`Wait`](Next::Wait) lets go until *urgent* demand comes, though soft demand was recorded during
//!   it: that stays for the next owner. Soft demand recorded in the wait answers
//!   [`Waits`](Recorded::Waits), queues nothing and is seen by the owner that the urgent demand brings.
//! * **Ownership is never lost.** A hand-over that an executor refuses comes back as a [`Stranded`] value that holds the [`Ownership`].
//!   So does a queued turn that is dropped unrun, by [`Work::stranded`].
//! * **Old owners have no say.** Ownership is a value that is consumed as it ends. The one error that can come later, an executor's
//!   refusal of a job that it ran after all, is told from a true one by the generation in the word, and ignored.
//! * **Panics.** A step that panics is followed by [`Work::panicked`], still under ownership. The demand that this leaves is published
//!   in one step with the end of ownership. A panic is propagated only when nobody owns the turn or a queued job does.
//! * **No nesting.** A step that joins or schedules its own turn is answered at once. An executor that runs, or drops, the yielded
//!   job inside `submit` only gives it back to the thread that yielded, which goes on: the depth is 1 whatever the budget.
//! * **Progress.** Recording is lock-free: one read-modify-write. No call waits for the owner: a thread that stops anywhere, in a step
//!   or in this crate, holds up the work but none of the other threads' calls.
//! * **Memory.** A turn makes three allocations when it is made (itself, its job, its executor's handle), and none later: a yield queues
//!   the same job each time. The first turn that a thread drives allocates a few words for that thread, once.
//!
//! # Protocol
//! One word decides: a phase, the demand, and a generation that counts the entries into *running*. Each row is one read-modify-write.
//!
//! | step | from | to | by | unless |
//! |---|---|---|---|---|
//! | `record` | any | the same, with more demand | anybody | |
//! | `own` | idle, waiting | running | whoever joins | no demand calls for an owner |
//! | `schedule` | idle, waiting | queued | whoever schedules | no demand calls for an owner |
//! | `take` | running | the same, without demand | the owner, before a step | |
//! | `leave` | running | idle | the owner, after [`Idle`](Next::Idle) | there is demand |
//! | `leave` | running | waiting | the owner, after [`Wait`](Next::Wait) | there is urgent demand |
//! | `yield` | running | queued | the owner, when its budget is used up | |
//! | `claim` | queued | running | the queued job, as it runs or is dropped | somebody else did |
//! | `take_back` | queued | running | whoever queued the job, as it is refused | the generation is another one |
//! | `recover` | running | idle, with the demand to mend | the owner, after a panic | there is demand: it stays, with both |
//! | `give_up` | running | idle, demand unchanged | an [`Ownership`] that is dropped | |
//!
//! In *idle* any demand calls for an owner, in *waiting* urgent demand does. `leave` that finds demand counts as a step of the budget.
//! Every way into *running* makes one token that can be neither copied nor cloned, every way out of it consumes one; the state is
//! reached by borrowing the token.
//!
//! # Orderings
//! | operation | ordering | pairs with | why |
//! |---|---|---|---|
//! | `record` | Release | `take` | the step sees the mailbox as it was when the demand was recorded |
//! | `take` | Acquire | `record` | |
//! | `own`, `claim`, `take_back` | Acquire | `leave`, `yield`, `recover`, `give_up` | the owner sees the state as the last one left it |
//! | `leave`, `yield`, `recover`, `give_up` | Release | `own`, `claim`, `take_back` | |
//! | `schedule` | Relaxed | | does not touch the state, and continues the last owner's release sequence for `claim` and `take_back` |
//! | a claim that finds nothing queued | Relaxed | | a read-modify-write, so that it reads the newest word whatever the executor orders |
//! | loads before these | Relaxed | | guesses, which the read-modify-write confirms |
//!
//! Nothing leans on an ordering of the executor.
//!
//! # Limits
//! * There are 15 kinds of soft and 15 of urgent demand; they carry no data and no count.
//! * A turn is neither fair nor fast to switch: under demand without end the thread that joined takes a whole budget of steps, and a
//!   queued turn starts when its executor says so. Joining meanwhile does not take over.
//! * An executor that runs jobs inside `submit` makes [`schedule`](Turn::schedule) run the turn on the calling thread. Give threads
//!   that must not run it an executor of another kind. As the executor to yield to, it makes a turn go on until there is nothing to do.
//! * A turn holds its executor and a queued turn is held by it: an executor that is given up must drop its jobs, or both stay.
//! * While a thread ends and its thread-locals are gone, an executor that runs jobs inside `submit` does nest turns.
//! * The generation has 32 bits. It matters only against an executor that reports a refusal of a job that it kept.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod demand;
mod frame;
mod outcome;
mod ownership;
mod turn;
mod word;
mod work;

pub use demand::Demand;
pub use outcome::{Joined, Recorded, Scheduled, Stranded, Why};
pub use ownership::Ownership;
pub use turn::{Builder, Turn};
pub use work::{Next, Panicked, Recovery, Work};
