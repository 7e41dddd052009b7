//! Typed channels, each drained by a thread of its own.

use std::sync::mpsc;
use std::thread;

use super::{Open, Peer, Sink, Task};

/// Starts the thread that drains a channel until the last task.
pub(super) fn drain(
    mut sink: Sink,
    mut next: impl FnMut() -> Task + Send + 'static,
) -> Box<dyn FnOnce() -> Option<u64>> {
    let consumer = thread::spawn(move || {
        while !sink.is_finished() {
            let task = next();
            sink.handle(task);
        }
    });
    Box::new(move || {
        consumer.join().expect("the consumer does not panic");
        None
    })
}

macro_rules! typed_channel {
    ($(#[$doc:meta])* $peer:ident, $sender:ty, $open:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $peer;

        impl Peer for $peer {
            type Sender = $sender;

            fn open(sink: Sink, producers: u64) -> Open<Self::Sender> {
                let (sender, receiver) = $open;
                // The senders are all there before the first task: the channel is not closed while a task is awaited.
                let close = drain(sink, move || receiver.recv().expect("a producer holds the other end"));
                Open { senders: (0..producers).map(|_| sender.clone()).collect(), close }
            }

            #[inline]
            fn send(sender: &mut Self::Sender, task: Task) {
                sender.send(task).expect("the consumer takes every task");
            }
        }
    };
}

typed_channel!(
    /// A ring behind a spinning lock.
    Kanal, kanal::Sender<Task>, kanal::unbounded::<Task>()
);
typed_channel!(
    /// Linked blocks, one consumer.
    Crossfire, crossfire::MTx<crossfire::mpsc::List<Task>>, crossfire::mpsc::unbounded_blocking::<Task>()
);
typed_channel!(
    /// Linked blocks, many consumers.
    Crossbeam, crossbeam_channel::Sender<Task>, crossbeam_channel::unbounded::<Task>()
);
typed_channel!(
    /// The standard library's.
    StdMpsc, mpsc::Sender<Task>, mpsc::channel::<Task>()
);
typed_channel!(
    /// A deque behind a lock.
    Flume, flume::Sender<Task>, flume::unbounded::<Task>()
);
