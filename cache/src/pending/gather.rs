//! What becomes of a read that was cut into parts.

use folio_sync::{Arc, Mutex};

use super::storage::StorageFailure;
use super::{Done, drop_all};

/// What came of the parts, in their order.
pub(crate) type Parts<V> = Vec<Result<Vec<V>, StorageFailure>>;

/// Parts that are not all there yet.
struct Gathered<V> {
    parts: Vec<Option<Result<Vec<V>, StorageFailure>>>,
    missing: usize,
    done: Option<Box<dyn FnOnce(Parts<V>) + Send>>,
}

impl<V> Gathered<V> {
    /// Takes a part; whom to tell if it was the last one.
    #[allow(clippy::type_complexity, reason = "a function and its argument")]
    fn take(
        &mut self,
        at: usize,
        part: Result<Vec<V>, StorageFailure>,
    ) -> Option<(Box<dyn FnOnce(Parts<V>) + Send>, Parts<V>)> {
        self.parts[at] = Some(part);
        self.missing -= 1;
        if self.missing > 0 {
            return None;
        }
        Some((self.done.take()?, self.parts.drain(..).flatten().collect()))
    }
}

/// Listeners for so many parts, of which the last one to hear calls `done` with all of them.
pub(crate) fn gather<V: Send + 'static>(
    parts: usize,
    done: impl FnOnce(Parts<V>) + Send + 'static,
) -> impl Iterator<Item = Done<V>> {
    let gathered =
        Gathered { parts: (0..parts).map(|_| None).collect(), missing: parts, done: Some(Box::new(done)) };
    let gathered = Arc::new(Mutex::new(gathered));
    (0..parts).map(move |at| {
        let gathered = Arc::clone(&gathered);
        Box::new(move |part| {
            let last = gathered.lock().take(at, part);
            if let Some((done, parts)) = last {
                done(parts);
            }
        }) as Done<V>
    })
}

/// The parts, if none has failed.
///
/// # Errors
/// The first failure; the parts are dropped.
pub(crate) fn whole<V>(parts: Parts<V>) -> Result<Vec<Vec<V>>, StorageFailure> {
    if let Some(failure) = parts.iter().find_map(|part| part.as_ref().err().cloned()) {
        drop_all(parts.into_iter().flatten().flatten());
        return Err(failure);
    }
    Ok(parts.into_iter().flatten().collect())
}

/// One after the other, as far as they follow each other; each part with how many entries it should have.
///
/// # Errors
/// The first failure, if a part has failed.
pub(crate) fn concatenate<V>(parts: Parts<V>, wanted: &[usize]) -> Result<Vec<V>, StorageFailure> {
    let parts = whole(parts)?;
    let mut all = Vec::new();
    let mut parts = parts.into_iter().zip(wanted);
    for (part, wanted) in parts.by_ref() {
        let is_short = part.len() < *wanted;
        all.extend(part);
        if is_short {
            break;
        }
    }
    drop_all(parts.flat_map(|(part, _)| part));
    Ok(all)
}
