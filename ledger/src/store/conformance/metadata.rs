//! The suite of stores of small values.

use bytes::Bytes;
use folio_sync::{Arc, thread};

use super::super::error::StoreError;
use super::super::metadata::{Change, Expected, MAX_KEY_BYTES, MAX_VALUE_BYTES, MetadataStore, Versioned};
use super::{ask, get, refused};

/// Shows that a store of small values does what [`MetadataStore`] says; `make` makes an empty one.
///
/// # Panics
/// When it does not.
pub fn metadata_store<S: MetadataStore>(make: &dyn Fn() -> S) {
    values_have_versions(&make());
    a_version_never_comes_again(&make());
    changes_are_made_together_or_not_at_all(&make());
    keys_are_listed_in_order(&make());
    what_is_too_large_is_refused(&make());
    counting_by_compare_and_set(&Arc::new(make()));
}

fn put(key: &str, expected: Expected, value: &str) -> Change {
    Change { key: key.into(), expected, value: Some(Bytes::copy_from_slice(value.as_bytes())) }
}

fn delete(key: &str, expected: Expected) -> Change {
    Change { key: key.into(), expected, value: None }
}

/// Makes a change that sets a value; its version.
#[track_caller]
fn set(store: &impl MetadataStore, change: Change) -> u64 {
    let versions = get(|done| store.commit(vec![change], done));
    assert_eq!(versions.len(), 1);
    versions[0].expect("a value has a version")
}

fn values_have_versions(store: &impl MetadataStore) {
    assert_eq!(get(|done| store.get("a", done)), None);
    let first = set(store, put("a", Expected::Absent, "1"));
    assert_eq!(get(|done| store.get("a", done)), Some(Versioned { version: first, value: "1".into() }));
    let conflict = StoreError::Conflict { key: "a".into(), found: Some(first) };
    assert_eq!(refused(|done| store.commit(vec![put("a", Expected::Absent, "2")], done)), conflict);
    let second = set(store, put("a", Expected::Version(first), "2"));
    assert!(second > first);
    let conflict = StoreError::Conflict { key: "a".into(), found: Some(second) };
    for expected in [Expected::Version(first), Expected::Version(second + 1)] {
        assert_eq!(refused(|done| store.commit(vec![put("a", expected, "3")], done)), conflict);
        assert_eq!(refused(|done| store.commit(vec![delete("a", expected)], done)), conflict);
    }
    let third = set(store, put("a", Expected::Any, ""));
    assert_eq!(get(|done| store.get("a", done)), Some(Versioned { version: third, value: Bytes::new() }));
    let conflict = StoreError::Conflict { key: "b".into(), found: None };
    assert_eq!(refused(|done| store.commit(vec![put("b", Expected::Version(1), "")], done)), conflict);
    assert_eq!(get(|done| store.commit(Vec::new(), done)), []);
}

fn a_version_never_comes_again(store: &impl MetadataStore) {
    let mut last = 0;
    for _ in 0..5 {
        let version = set(store, put("a", Expected::Absent, "x"));
        assert!(version > last, "not even after it was deleted");
        last = version;
        assert_eq!(get(|done| store.commit(vec![delete("a", Expected::Version(last))], done)), [None]);
        assert_eq!(get(|done| store.commit(vec![delete("a", Expected::Any)], done)), [None]);
        assert_eq!(get(|done| store.get("a", done)), None);
    }
}

fn changes_are_made_together_or_not_at_all(store: &impl MetadataStore) {
    let a = set(store, put("a", Expected::Absent, "1"));
    let wrong = vec![
        put("b", Expected::Absent, "1"),
        delete("a", Expected::Version(a)),
        put("c", Expected::Version(9), ""),
    ];
    let conflict = StoreError::Conflict { key: "c".into(), found: None };
    assert_eq!(refused(|done| store.commit(wrong, done)), conflict);
    assert_eq!(get(|done| store.list("", done)), [("a".to_owned(), a)]);
    let right = vec![
        put("b", Expected::Absent, "1"),
        delete("a", Expected::Version(a)),
        put("c", Expected::Absent, ""),
    ];
    let versions = get(|done| store.commit(right, done));
    assert!(versions[0].is_some() && versions[1].is_none() && versions[2].is_some());
    assert_eq!(get(|done| store.get("a", done)), None);
    let twice = vec![put("d", Expected::Any, "1"), put("d", Expected::Any, "2")];
    assert!(matches!(refused(|done| store.commit(twice, done)), StoreError::Invalid(_)));
    assert!(matches!(
        refused(|done| store.commit(vec![put("", Expected::Any, "")], done)),
        StoreError::Invalid(_)
    ));
}

fn keys_are_listed_in_order(store: &impl MetadataStore) {
    for key in ["b/2", "a", "b/10", "b", "c", "b/1", "b0"] {
        set(store, put(key, Expected::Absent, key));
    }
    let keys = |prefix: &str| -> Vec<String> {
        get(|done| store.list(prefix, done)).into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("b/"), ["b/1", "b/10", "b/2"]);
    assert_eq!(keys(""), ["a", "b", "b/1", "b/10", "b/2", "b0", "c"]);
    assert_eq!(keys("d"), [""; 0]);
    get(|done| store.commit(vec![delete("b/10", Expected::Any)], done));
    assert_eq!(keys("b/"), ["b/1", "b/2"]);
}

fn what_is_too_large_is_refused(store: &impl MetadataStore) {
    let value = |bytes: usize| Change { value: Some(vec![7; bytes].into()), ..put("a", Expected::Any, "") };
    let error = refused(|done| store.commit(vec![value(MAX_VALUE_BYTES + 1)], done));
    assert_eq!(error, StoreError::TooLarge { bytes: MAX_VALUE_BYTES + 1, most: MAX_VALUE_BYTES });
    set(store, value(MAX_VALUE_BYTES));
    let got = get(|done| store.get("a", done)).expect("it was set");
    assert_eq!(got.value, vec![7; MAX_VALUE_BYTES]);
    let error =
        refused(|done| store.commit(vec![put(&"k".repeat(MAX_KEY_BYTES + 1), Expected::Any, "")], done));
    assert_eq!(error, StoreError::TooLarge { bytes: MAX_KEY_BYTES + 1, most: MAX_KEY_BYTES });
    set(store, put(&"k".repeat(MAX_KEY_BYTES), Expected::Any, ""));
}

fn counting_by_compare_and_set(store: &Arc<impl MetadataStore>) {
    set(&**store, put("count", Expected::Absent, "0"));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let store = Arc::clone(store);
            thread::spawn(move || (0..20).for_each(|_| count_one(&*store)))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread counts");
    }
    let got = get(|done| store.get("count", done)).expect("it was set");
    assert_eq!(got.value, "60");
}

fn count_one(store: &impl MetadataStore) {
    loop {
        let got = get(|done| store.get("count", done)).expect("it was set");
        let count: u32 =
            std::str::from_utf8(&got.value).ok().and_then(|text| text.parse().ok()).expect("a number");
        let change = put("count", Expected::Version(got.version), &(count + 1).to_string());
        match ask(|done| store.commit(vec![change], done)).wait() {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
