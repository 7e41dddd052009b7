//! A question to storage.

use folio_sync::Arc;

use crate::pending::{ReadDone, ReadStorage, StorageFailure, Stored, contained};
use crate::range::Position;

/// How often storage is asked for the same before it has failed.
pub(super) const TRIES: u32 = 2;

/// Asks storage, once more if what it reads from was closed; user code's panics are failures.
pub(super) fn ask<V: Send + 'static>(
    storage: &Arc<dyn ReadStorage<V>>,
    position: Position,
    count: u32,
    tries: u32,
    answered: impl FnOnce(Result<Stored<V>, StorageFailure>) + Send + 'static,
) {
    let again = Arc::clone(storage);
    let done = ReadDone::new(move |answer| match answer {
        Err(StorageFailure::Closed) if tries > 1 => {
            ask_boxed(&again, position, count, tries - 1, Box::new(answered));
        }
        answer => answered(answer),
    });
    contained(|| storage.read(position.0, position.1, count, done));
}

/// [`ask`] with a listener of one type, however often it is asked again.
fn ask_boxed<V: Send + 'static>(
    storage: &Arc<dyn ReadStorage<V>>,
    position: Position,
    count: u32,
    tries: u32,
    answered: Box<dyn FnOnce(Result<Stored<V>, StorageFailure>) + Send>,
) {
    ask(storage, position, count, tries, answered);
}
