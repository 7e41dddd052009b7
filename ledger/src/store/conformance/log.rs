//! The suite of stores of ledgers.

use bytes::Bytes;
use folio_sync::{Arc, Mutex, thread};

use super::super::error::StoreError;
use super::super::log::{Append, Appended, FenceScope, LedgerInfo, LogStore, ReadLimits};
use super::{Answer, ask, get, refused};
use crate::position::Position;

/// Everything that there is.
const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };

/// Shows that a store of ledgers does what [`LogStore`] says; `make` makes an empty one, which takes batches of 8 KiB.
///
/// # Panics
/// When it does not.
pub fn log_store<S: LogStore>(make: &dyn Fn() -> S) {
    entries_are_read_as_they_were_appended(&make());
    reads_keep_to_their_limits(&make());
    a_batch_that_does_not_follow_is_refused(&make());
    appends_are_answered_in_order(&make());
    what_is_not_there_is_told(&make());
    a_closed_ledger_takes_nothing_more(&make());
    a_newer_owner_fences_the_older(&make());
    a_fence_reaches_as_far_as_is_said(&make());
    appends_against_a_fence(&Arc::new(make()));
    what_is_deleted_never_comes_back(&make());
    groups_list_their_ledgers(&make());
    what_is_too_large_is_refused(&make());
    answers_may_ask_again(&Arc::new(make()));
    ledgers_do_not_disturb_each_other(&Arc::new(make()));
}

fn payload(ledger: i64, entry: i64) -> Bytes {
    let size = usize::try_from((ledger * 31 + entry * 7) % 90).unwrap_or(0);
    let mut payload = format!("{ledger}:{entry} ").into_bytes();
    payload.resize(payload.len() + size, b'.');
    payload.into()
}

fn batch(ledger: i64, epoch: u64, first: i64, count: i64) -> Append {
    let entries = (first..first + count).map(|entry| payload(ledger, entry)).collect();
    Append { ledger, epoch, first, entries }
}

fn make_ledger(store: &impl LogStore, ledger: i64) {
    get(|done| store.create("a group", ledger, 1, done));
}

fn append(store: &impl LogStore, ledger: i64, first: i64, count: i64) {
    let appended = get(|done| store.append(batch(ledger, 1, first, count), done));
    assert_eq!(appended.last, first + count - 1);
    assert_eq!(appended.durability, store.capabilities().durability);
}

/// Reads all there is from an entry on, in as many reads as the store likes.
fn read_from(store: &impl LogStore, ledger: i64, first: i64) -> Vec<Bytes> {
    let last = get(|done| store.last_confirmed(ledger, done));
    let (mut next, mut all) = (first, Vec::new());
    while next <= last {
        let some = get(|done| store.read(ledger, next, ALL, done));
        assert!(!some.is_empty(), "a read makes progress");
        next += count(&some);
        all.extend(some);
    }
    all
}

#[track_caller]
fn holds(store: &impl LogStore, ledger: i64, count: i64) {
    assert_eq!(get(|done| store.last_confirmed(ledger, done)), count - 1);
    let expected: Vec<_> = (0..count).map(|entry| payload(ledger, entry)).collect();
    assert_eq!(read_from(store, ledger, 0), expected);
}

fn count(entries: &[Bytes]) -> i64 {
    i64::try_from(entries.len()).expect("entries are few")
}

fn entries_are_read_as_they_were_appended(store: &impl LogStore) {
    make_ledger(store, 5);
    holds(store, 5, 0);
    let mut next = 0;
    for size in [1, 2, 30, 1, 40] {
        append(store, 5, next, size);
        next += size;
        holds(store, 5, next);
    }
    for first in [0, 1, 2, 3, 35, next - 1] {
        let expected: Vec<_> = (first..next).map(|entry| payload(5, entry)).collect();
        assert_eq!(read_from(store, 5, first), expected, "from {first} on");
    }
    let empty = Append { entries: vec![Bytes::new(), Bytes::new()], ..batch(5, 1, next, 0) };
    get(|done| store.append(empty, done));
    assert_eq!(read_from(store, 5, next), [Bytes::new(), Bytes::new()]);
}

fn reads_keep_to_their_limits(store: &impl LogStore) {
    make_ledger(store, 5);
    append(store, 5, 0, 50);
    let read = |first, entries, bytes| get(|done| store.read(5, first, ReadLimits { entries, bytes }, done));
    assert_eq!(read(3, 1, usize::MAX), [payload(5, 3)]);
    for entries in 1..9 {
        let some = read(10, entries, usize::MAX);
        assert!(!some.is_empty() && some.len() <= entries);
    }
    assert_eq!(read(7, 10, 0), [payload(5, 7)], "the first one whatever its size");
    let two = payload(5, 7).len() + payload(5, 8).len();
    let some = read(7, 10, two);
    assert!(!some.is_empty() && some.len() <= 2);
    assert_eq!(read(7, 10, two - 1), [payload(5, 7)]);
    let none = ReadLimits { entries: 0, bytes: 1 };
    assert!(matches!(refused(|done| store.read(5, 0, none, done)), StoreError::Invalid(_)));
}

fn a_batch_that_does_not_follow_is_refused(store: &impl LogStore) {
    make_ledger(store, 5);
    append(store, 5, 0, 3);
    for first in [0, 2, 4, 100, i64::MAX, -1, i64::MIN] {
        let mut wrong = batch(5, 1, 3, 2);
        wrong.first = first;
        let error = refused(|done| store.append(wrong, done));
        assert_eq!(error, StoreError::OutOfOrder { expected: 3 }, "first is {first}");
    }
    assert!(matches!(refused(|done| store.append(batch(5, 1, 3, 0), done)), StoreError::Invalid(_)));
    append(store, 5, 3, 2);
    holds(store, 5, 5);
}

fn appends_are_answered_in_order(store: &impl LogStore) {
    make_ledger(store, 5);
    let told = Arc::new(Mutex::new(Vec::new()));
    for round in 0..49 {
        let told = Arc::clone(&told);
        let done = super::Done::new(move |answer| told.lock().push((round, answer)));
        store.append(batch(5, 1, round * 3, 3), done);
    }
    append(store, 5, 147, 3);
    let told = std::mem::take(&mut *told.lock());
    assert_eq!(told.len(), 49, "the last one is answered last");
    for ((round, answer), expected) in told.into_iter().zip(0..) {
        assert_eq!(round, expected, "in the order of the appends");
        assert_eq!(answer.map(|appended: Appended| appended.last), Ok(round * 3 + 2));
    }
    holds(store, 5, 150);
    // What follows a refused one does not follow what is there.
    let asked: Vec<_> =
        [151, 152].map(|first| ask(|done| store.append(batch(5, 1, first, 1), done))).into_iter().collect();
    for answer in asked {
        assert_eq!(answer.wait(), Err(StoreError::OutOfOrder { expected: 150 }));
    }
}

fn what_is_not_there_is_told(store: &impl LogStore) {
    let none = StoreError::NoSuchLedger(8);
    assert_eq!(refused(|done| store.append(batch(8, 1, 0, 1), done)), none);
    assert_eq!(refused(|done| store.read(8, 0, ALL, done)), none);
    assert_eq!(refused(|done| store.last_confirmed(8, done)), none);
    assert_eq!(refused(|done| store.close(8, 1, done)), none);
    assert_eq!(refused(|done| store.recover(8, 1, done)), none);
    assert_eq!(refused(|done| store.delete(8, 1, done)), none);
    assert_eq!(get(|done| store.list("a group", done)), []);
    make_ledger(store, 8);
    assert_eq!(refused(|done| store.create("a group", 8, 1, done)), StoreError::Exists(8));
    assert_eq!(refused(|done| store.create("another", 8, 9, done)), StoreError::Exists(8));
    append(store, 8, 0, 2);
    for entry in [2, 3, i64::MAX, -1, i64::MIN] {
        let missing = StoreError::NoSuchEntry(Position { ledger: 8, entry });
        assert_eq!(refused(|done| store.read(8, entry, ALL, done)), missing);
    }
    for ledger in [-1, i64::MIN] {
        assert!(matches!(refused(|done| store.create("a group", ledger, 1, done)), StoreError::Invalid(_)));
    }
}

fn a_closed_ledger_takes_nothing_more(store: &impl LogStore) {
    make_ledger(store, 5);
    make_ledger(store, 6);
    append(store, 5, 0, 4);
    assert_eq!(get(|done| store.close(5, 1, done)), 3);
    assert_eq!(get(|done| store.close(6, 1, done)), -1);
    assert_eq!(get(|done| store.close(5, 1, done)), 3, "it may be closed again");
    let closed = StoreError::LedgerClosed { last: 3 };
    assert_eq!(refused(|done| store.append(batch(5, 1, 4, 1), done)), closed);
    holds(store, 5, 4);
    holds(store, 6, 0);
}

fn a_newer_owner_fences_the_older(store: &impl LogStore) {
    make_ledger(store, 5);
    append(store, 5, 0, 4);
    assert_eq!(get(|done| store.recover(5, 7, done)), 3);
    let fenced = StoreError::Fenced { epoch: 7 };
    assert_eq!(refused(|done| store.append(batch(5, 1, 4, 1), done)), fenced);
    assert_eq!(refused(|done| store.close(5, 1, done)), fenced);
    assert_eq!(refused(|done| store.delete(5, 6, done)), fenced);
    assert_eq!(refused(|done| store.recover(5, 6, done)), fenced);
    assert_eq!(get(|done| store.recover(5, 7, done)), 3, "by the same owner again");
    let closed = StoreError::LedgerClosed { last: 3 };
    assert_eq!(refused(|done| store.append(batch(5, 7, 4, 1), done)), closed);
    holds(store, 5, 4);
    assert_eq!(get(|done| store.recover(5, 8, done)), 3, "by the next one");
    get(|done| store.create("a group", 6, 8, done));
    get(|done| store.append(batch(6, 8, 0, 2), done));
    assert!(matches!(refused(|done| store.append(batch(6, 9, 2, 1), done)), StoreError::Invalid(_)));
    holds(store, 6, 2);
}

fn a_fence_reaches_as_far_as_is_said(store: &impl LogStore) {
    make_ledger(store, 5);
    make_ledger(store, 6);
    get(|done| store.create("another", 7, 1, done));
    get(|done| store.recover(5, 2, done));
    append(store, 7, 0, 1);
    let fenced = StoreError::Fenced { epoch: 2 };
    match store.capabilities().fences {
        FenceScope::Ledger => append(store, 6, 0, 1),
        FenceScope::Group => {
            assert_eq!(refused(|done| store.append(batch(6, 1, 0, 1), done)), fenced);
            assert_eq!(refused(|done| store.create("a group", 8, 1, done)), fenced);
            get(|done| store.create("a group", 8, 3, done));
            let fenced = StoreError::Fenced { epoch: 3 };
            assert_eq!(refused(|done| store.recover(6, 2, done)), fenced);
            assert_eq!(get(|done| store.recover(6, 3, done)), -1);
        }
    }
}

fn appends_against_a_fence(store: &Arc<impl LogStore>) {
    make_ledger(&**store, 5);
    append(&**store, 5, 0, 1);
    let theirs = Arc::clone(store);
    let owner = thread::spawn(move || {
        let asked: Vec<Answer<_>> =
            (0..200).map(|n| ask(|done| theirs.append(batch(5, 1, 1 + n * 2, 2), done))).collect();
        asked.into_iter().map(Answer::wait).collect::<Vec<_>>()
    });
    let last = get(|done| store.recover(5, 2, done));
    let again = get(|done| store.recover(5, 2, done));
    assert_eq!(again, last, "what was recovered stays so");
    let mut well = true;
    for (n, answer) in (0_i64..).zip(owner.join().expect("the owner does not panic")) {
        match answer {
            Ok(appended) => {
                assert!(well, "nothing is appended after what was refused");
                assert!(appended.last <= last, "what was answered well is recovered");
                assert_eq!(appended.last, n * 2 + 2);
            }
            Err(StoreError::Fenced { epoch: 2 }) => well = false,
            Err(other) => panic!("{other}"),
        }
    }
    holds(&**store, 5, last + 1);
}

fn what_is_deleted_never_comes_back(store: &impl LogStore) {
    make_ledger(store, 5);
    append(store, 5, 0, 10);
    get(|done| store.delete(5, 1, done));
    assert_eq!(refused(|done| store.read(5, 0, ALL, done)), StoreError::NoSuchLedger(5));
    assert_eq!(get(|done| store.list("a group", done)), []);
    make_ledger(store, 5);
    holds(store, 5, 0);
    append(store, 5, 0, 2);
    holds(store, 5, 2);
    get(|done| store.close(5, 1, done));
    get(|done| store.delete(5, 1, done));
    assert_eq!(refused(|done| store.delete(5, 1, done)), StoreError::NoSuchLedger(5));
}

fn groups_list_their_ledgers(store: &impl LogStore) {
    for (group, ledger) in [("b", 9), ("a", 3), ("a", 1), ("ab", 2), ("a", 7)] {
        get(|done| store.create(group, ledger, 4, done));
    }
    get(|done| store.append(batch(3, 4, 0, 6), done));
    get(|done| store.close(3, 4, done));
    get(|done| store.delete(7, 4, done));
    let expected = [LedgerInfo::new(1, 4, -1, false), LedgerInfo::new(3, 4, 5, true)];
    assert_eq!(get(|done| store.list("a", done)), expected);
    assert_eq!(get(|done| store.list("b", done)), [LedgerInfo::new(9, 4, -1, false)]);
    assert_eq!(get(|done| store.list("c", done)), []);
}

fn what_is_too_large_is_refused(store: &impl LogStore) {
    make_ledger(store, 5);
    let capabilities = store.capabilities();
    let most = capabilities.max_entry_bytes;
    // Nobody makes payloads of such a size to see that they are refused.
    if most <= 64 << 20 {
        let large = |bytes| Append { entries: vec![vec![7; bytes].into()], ..batch(5, 1, 0, 0) };
        let error = refused(|done| store.append(large(most + 1), done));
        assert_eq!(error, StoreError::TooLarge { bytes: most + 1, most });
        get(|done| store.append(large(most), done));
        assert_eq!(read_from(store, 5, 0), large(most).entries);
        let each = most / 2;
        let count = capabilities.max_batch_bytes / each + 1;
        if count <= 10_000 {
            let entries = vec![Bytes::from(vec![7; each]); count];
            let error = refused(|done| store.append(Append { entries, ..batch(5, 1, 1, 0) }, done));
            assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
        }
        assert_eq!(get(|done| store.last_confirmed(5, done)), 0);
    }
}

fn answers_may_ask_again<S: LogStore>(store: &Arc<S>) {
    fn next<S: LogStore>(store: &Arc<S>, entry: i64, end: super::Done<i64>) {
        let then = Arc::clone(store);
        let done = super::Done::new(move |answer: Result<_, _>| match answer {
            Ok(_) if entry < 20 => next(&then, entry + 1, end),
            Ok(_) => then.last_confirmed(5, end),
            Err(error) => end.tell(Err(error)),
        });
        store.append(batch(5, 1, entry, 1), done);
    }
    make_ledger(&**store, 5);
    assert_eq!(get(|done| next(store, 0, done)), 20);
    holds(&**store, 5, 21);
}

fn ledgers_do_not_disturb_each_other(store: &Arc<impl LogStore>) {
    for ledger in 0..12 {
        get(|done| store.create(&format!("group {}", ledger % 5), ledger, 1, done));
    }
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let store = Arc::clone(store);
            thread::spawn(move || {
                for round in 0..30 {
                    let asked: Vec<_> = (thread * 4..thread * 4 + 4)
                        .map(|ledger| ask(|done| store.append(batch(ledger, 1, round * 5, 5), done)))
                        .collect();
                    for answer in asked {
                        assert_eq!(answer.wait().map(|appended| appended.last), Ok(round * 5 + 4));
                    }
                }
            })
        })
        .collect();
    for round in 0..20 {
        for ledger in 0..12 {
            let last = get(|done| store.last_confirmed(ledger, done));
            if last >= 0 {
                let first = (round * 7) % (last + 1);
                let some = get(|done| store.read(ledger, first, ReadLimits { entries: 9, bytes: 900 }, done));
                for (entry, got) in (first..).zip(some) {
                    assert_eq!(got, payload(ledger, entry));
                }
            }
        }
    }
    for thread in threads {
        thread.join().expect("no append is refused");
    }
    (0..12).for_each(|ledger| holds(&**store, ledger, 150));
}
