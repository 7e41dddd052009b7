//! The switch under the standard library, and what the types promise about threads.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::cell::Cell;
use std::fmt::Debug;

use folio_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers, Tracked, spurious_every};
use folio_sync::time::{SystemClock, Upkeep};
use folio_sync::timers::{ThreadTimers, TimerId};
use folio_sync::{Arc, Job, Mutex, Rejected, arc_dyn, arc_from_std, hint, thread, unwind};

fn send<T: Send>() {}
fn send_sync<T: Send + Sync>() {}

/// Whether a type is `Sync`, without asking for it: the inherent method wins where its bound holds.
macro_rules! is_sync {
    ($type:ty) => {{
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "one of the two is chosen")]
        trait Otherwise {
            fn is_sync(&self) -> bool {
                false
            }
        }
        impl<T: ?Sized> Otherwise for Probe<T> {}
        #[allow(dead_code, reason = "one of the two is chosen")]
        impl<T: ?Sized + Sync> Probe<T> {
            fn is_sync(&self) -> bool {
                true
            }
        }
        Probe::<$type>(std::marker::PhantomData).is_sync()
    }};
}

#[test]
fn the_types_go_to_other_threads_where_their_content_may() {
    send_sync::<ManualExecutor>();
    send_sync::<ManualTimers>();
    send_sync::<ManualClock>();
    send_sync::<ThreadTimers>();
    send_sync::<TimerId>();
    send_sync::<SystemClock>();
    send_sync::<Upkeep>();
    send_sync::<Mutex<Cell<u8>>>();
    send_sync::<Tracked<u8>>();
    send_sync::<thread::JoinHandle<u8>>();
    send_sync::<AtomicPtr<u8>>();
    send::<Job>();
    send::<Rejected<Job>>();
    send::<UnsafeCell<u8>>();
    assert!(!is_sync!(UnsafeCell<u8>), "who shares a cell says why it is sound");
    assert!(!is_sync!(Tracked<Cell<u8>>));
    assert!(!is_sync!(Job), "a boxed closure need not be");
    assert!(is_sync!(Tracked<u8>));
}

#[test]
fn a_mutex_survives_the_panic_of_its_holder() {
    let mutex = Mutex::new(1);
    let panicked = unwind::catch(|| {
        let mut held = mutex.lock();
        *held = 2;
        panic!("while it is held");
    });
    assert!(panicked.is_err());
    assert_eq!(*mutex.lock(), 2);
    assert_eq!(format!("{mutex:?} {:?}", mutex.lock()), "Mutex { .. } 2");
    assert_eq!(*Mutex::<u8>::default().lock(), 0);
}

#[test]
fn a_mutex_lets_one_in_at_a_time() {
    let count = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                for _ in 0..1_000 {
                    *count.lock() += 1;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*count.lock(), 4_000);
}

#[test]
fn arcs_of_trait_objects_are_made_of_values_and_of_standard_arcs() {
    let made: Arc<dyn Debug + Send + Sync> = arc_dyn!("text" => dyn Debug + Send + Sync);
    assert_eq!(format!("{made:?}"), "\"text\"");
    let taken: Arc<[u8]> = arc_from_std([1, 2, 3].into());
    assert_eq!(*taken, [1, 2, 3]);
}

folio_sync::thread_local! {
    /// One a thread.
    static NUMBER: Cell<u32> = Cell::new(7);
}

#[test]
fn a_thread_local_is_one_a_thread() {
    NUMBER.with(|number| number.set(8));
    let elsewhere = thread::spawn(|| NUMBER.with(Cell::get)).join().unwrap();
    assert_eq!((elsewhere, NUMBER.with(Cell::get)), (7, 8));
}

#[test]
fn cells_are_read_and_written_through_closures() {
    let cell = UnsafeCell::new(1);
    cell.with_mut(|value| {
        // SAFETY: this test's thread is the only one that knows the cell.
        unsafe { *value = 2 };
    });
    let read = cell.with(|value| {
        // SAFETY: as above.
        unsafe { *value }
    });
    assert_eq!((read, cell.into_inner()), (2, 2));
    assert_eq!(UnsafeCell::<u8>::default().into_inner(), 0);
}

#[test]
fn injected_failures_are_for_models_only() {
    let _spurious = spurious_every(2);
    let flag = AtomicBool::new(false);
    let count = AtomicU64::default();
    for round in 0..100 {
        let mut seen = round;
        while let Err(now) = count.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = now;
            hint::spin_loop();
        }
    }
    fence(Ordering::SeqCst);
    flag.store(true, Ordering::Release);
    assert!(flag.load(Ordering::Acquire) && count.load(Ordering::Relaxed) == 100);
}

#[test]
#[should_panic(expected = "always fails never ends")]
fn failing_every_time_is_refused() {
    drop(spurious_every(1));
}

#[test]
fn threads_have_names_and_report_their_panics() {
    let named = thread::Builder::new().name("scribe".into()).stack_size(64 * 1024);
    assert_eq!(format!("{named:?}"), "Builder { .. }");
    let thread = named.spawn(|| thread::current().name().map(str::to_owned)).unwrap();
    assert_eq!(thread.thread().name(), Some("scribe"));
    assert_eq!(format!("{thread:?}"), "JoinHandle { .. }");
    assert_eq!(thread.join().unwrap().as_deref(), Some("scribe"));

    let panicking = thread::Builder::default().spawn(|| panic!("torn")).unwrap();
    while !panicking.is_finished() {
        thread::yield_now();
    }
    assert_eq!(unwind::message(&*panicking.join().unwrap_err()), "torn");
}

#[test]
fn a_payload_is_read_and_discarded_whatever_it_is() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    for (payload, message) in [
        (unwind::catch(|| panic!("text")).unwrap_err(), "text"),
        (unwind::catch(|| panic!("{} {}", "formatted", 7)).unwrap_err(), "formatted 7"),
        (unwind::catch(|| std::panic::panic_any(Bomb)).unwrap_err(), "a panic without a message"),
    ] {
        assert_eq!(unwind::message(&*payload), message);
        unwind::discard(payload);
    }
}
