//! Histories of concurrent operations, and whether some order of them, one after the other, gives the same results.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an operation did at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// Put this value where none was.
    Inserted(usize),
    /// Found a value where it was to insert.
    Occupied,
    /// Found none, and could not insert.
    Busy,
    /// Read this value, or none.
    Got(Option<usize>),
    /// Took the value out, or found none.
    Removed(bool),
    /// Took whatever value there was.
    Swept,
    /// May have taken what there was, and what came after it: a pass can come to a page more than once.
    Evicted,
}

/// One operation at one place, with the times of its begin and its end by a clock that ticks with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) place: i64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) did: Did,
}

impl Operation {
    fn overlaps(&self, other: &Self) -> bool {
        self.began < other.ended && other.began < self.ended
    }

    /// Whether it can keep what was removed from another place of the same page from being moved out.
    ///
    /// An insert that found its slot claimed has looked into the page, as a reader does.
    fn is_inside_its_page(&self) -> bool {
        !matches!(self.did, Did::Inserted(_))
    }

    /// What is at the place after it, if it can come when `state` is there.
    fn apply(&self, state: Option<usize>) -> Result<Option<usize>, CannotCome> {
        let (can, next) = match self.did {
            Did::Inserted(value) => (state.is_none(), Some(value)),
            Did::Occupied => (state.is_some(), state),
            Did::Busy | Did::Evicted => (true, state),
            Did::Got(value) => (state == value, state),
            Did::Removed(any) => (state.is_some() == any, None),
            Did::Swept => (true, None),
        };
        if can { Ok(next) } else { Err(CannotCome) }
    }
}

/// An operation cannot have its result there and then.
struct CannotCome;

/// A clock for the threads of a history.
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    fn tick(&self) -> u64 {
        // AcqRel: a time is greater than all that happened before it, and what follows a greater one comes after it.
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Runs an operation between two ticks.
    pub(crate) fn time<R>(&self, operation: impl FnOnce() -> R) -> (R, u64, u64) {
        let began = self.tick();
        let result = operation();
        (result, began, self.tick())
    }
}

/// Why a history is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No order of the operations gives this one its result.
    NoOrder(Operation),
    /// Nothing was in the way of this insert.
    NobodyInTheWay(Operation),
}

/// Checks a history of one page: for each place some order of its operations gives all their results, with each between its begin and its end;
/// and a busy insert overlaps an insert at its place, or an operation inside its page.
///
/// Places are independent of each other, hence checked one by one.
pub(crate) fn check(history: &[Operation]) -> Result<(), Fault> {
    let mut by_beginning = history.to_vec();
    by_beginning.sort_unstable_by_key(|operation| operation.began);
    for place in places(&by_beginning) {
        let there: Vec<_> =
            by_beginning.iter().filter(|operation| operation.place == place).copied().collect();
        check_order(&there)?;
        check_busy(&by_beginning, place)?;
    }
    Ok(())
}

/// The places of a history.
pub(crate) fn places(history: &[Operation]) -> Vec<i64> {
    let mut places: Vec<_> = history.iter().map(|operation| operation.place).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// A way in which what ended so far can have been ordered: what is at the place, and which of the pending operations came already.
type Way = (Option<usize>, u64);

/// Follows all ways through the begins and ends of the operations at one place, sorted by their begins.
fn check_order(operations: &[Operation]) -> Result<(), Fault> {
    let mut pending: [Option<Operation>; 64] = [None; 64];
    let mut ways: Vec<Way> = vec![(None, 0)];
    // When each pending operation ends, with its bit, the next one last.
    let mut ends: Vec<(u64, usize)> = Vec::new();
    for operation in operations.iter().map(Some).chain([None]) {
        let now = operation.map_or(u64::MAX, |operation| operation.began);
        while let Some(&(ended, bit)) = ends.last().filter(|(ended, _)| *ended < now) {
            debug_assert!(ended < now);
            ends.pop();
            ways = take(&ways, &pending, bit);
            let done = pending[bit].take().unwrap();
            if ways.is_empty() {
                return Err(Fault::NoOrder(done));
            }
        }
        if let Some(operation) = operation {
            let bit = pending.iter().position(Option::is_none).expect("at most 64 threads");
            pending[bit] = Some(*operation);
            let at = ends.partition_point(|(ended, _)| *ended > operation.ended);
            ends.insert(at, (operation.ended, bit));
        }
    }
    Ok(())
}

/// The ways on which the operation of this bit has come, each by as many of the other pending ones before it as it takes.
fn take(ways: &[Way], pending: &[Option<Operation>; 64], bit: usize) -> Vec<Way> {
    let (mut seen, mut open, mut taken) = (ways.to_vec(), ways.to_vec(), Vec::new());
    while let Some((state, came)) = open.pop() {
        if came & 1 << bit != 0 {
            let way = (state, came & !(1 << bit));
            if !taken.contains(&way) {
                taken.push(way);
            }
            continue;
        }
        let mut follow = |way| {
            if !seen.contains(&way) {
                seen.push(way);
                open.push(way);
            }
        };
        for (other, operation) in pending.iter().enumerate() {
            let Some(operation) = operation.filter(|_| came & 1 << other == 0) else { continue };
            if operation.did == Did::Evicted {
                // It takes what there is, and goes on.
                follow((None, came));
            }
            if let Ok(next) = operation.apply(state) {
                follow((next, came | 1 << other));
            }
        }
    }
    taken
}

/// Looks for what each busy insert at a place overlaps, in a history sorted by begins.
fn check_busy(history: &[Operation], place: i64) -> Result<(), Fault> {
    let in_the_way: Vec<_> = history
        .iter()
        .filter(|operation| operation.place == place || operation.is_inside_its_page())
        .collect();
    // The latest end of those that began before.
    let mut latest = 0;
    for (index, operation) in in_the_way.iter().enumerate() {
        if operation.place == place && operation.did == Did::Busy {
            let next = in_the_way.get(index + 1);
            if latest < operation.began && !next.is_some_and(|next| next.overlaps(operation)) {
                return Err(Fault::NobodyInTheWay(**operation));
            }
        }
        latest = latest.max(operation.ended);
    }
    Ok(())
}

/// How many operations at one place overlapped another one there, each with a partner of its own.
///
/// One that stood still while thousands came and went counts once, and so does its partner.
pub(crate) fn overlapping(history: &[Operation]) -> usize {
    let mut by_place = history.to_vec();
    by_place.sort_unstable_by_key(|operation| (operation.place, operation.began));
    let mut alone: Option<Operation> = None;
    let mut pairs = 0;
    for operation in by_place {
        match alone {
            Some(earlier) if earlier.place == operation.place && operation.overlaps(&earlier) => {
                pairs += 1;
                alone = None;
            }
            _ => alone = Some(operation),
        }
    }
    2 * pairs
}
