//! What receives messages.

use folio_ledger::{Entry, ReadError};

/// A message as a consumer gets it: an entry of the topic's ledger, its payload shared.
pub type Message = Entry;

/// Receives the messages of a subscription.
///
/// Called by the dispatcher, one call at a time for each consumer, on the subscription's executor or the thread whose call made it dispatch. It must
/// not block; what takes time goes to another thread. A panic ends there: the messages count as delivered.
pub trait Consumer: Send + Sync + 'static {
    /// Takes messages, in order, out of the vector, whose room is used again; what is left in it is dropped.
    ///
    /// Never more than it has given permits for.
    fn deliver(&self, messages: &mut Vec<Message>);

    /// The topic is closed, and all of its messages have been delivered.
    fn ended(&self) {}

    /// Messages could not be read. They are read again later, or when there is a reason to dispatch before, such as permits.
    fn read_failed(&self, error: &ReadError) {
        let _ = error;
    }
}
