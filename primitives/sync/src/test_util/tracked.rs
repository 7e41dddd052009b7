//! A payload that the checker watches.

use crate::cell::UnsafeCell;

/// A value that the checkers watch.
///
/// A leak, a second drop, a use after it and, under loom, an unsynchronised access fail the model.
/// Without a checker it is the bare value, and sanitizers watch it.
///
/// ```
/// use folio_sync::test_util::Tracked;
///
/// # #[cfg(not(any(loom, shuttle)))]
/// assert_eq!(*Tracked::new(7).get(), 7);
/// ```
#[derive(Debug)]
pub struct Tracked<T> {
    /// Read by every `get`, written by drop: loom reports those that do not happen one before the other.
    access: UnsafeCell<()>,
    /// Which entry of the checker's register is this value's: a bitwise copy has the same.
    #[cfg(any(loom, shuttle))]
    id: u64,
    #[cfg(loom)]
    value: loom::alloc::Track<T>,
    #[cfg(not(loom))]
    value: T,
}

impl<T> Tracked<T> {
    /// Begins to track `value`.
    #[cfg_attr(loom, track_caller)]
    pub fn new(value: T) -> Self {
        #[cfg(loom)]
        let value = loom::alloc::Track::new(value);
        Self {
            access: UnsafeCell::new(()),
            #[cfg(any(loom, shuttle))]
            id: register::enter(),
            value,
        }
    }

    /// Reads the value.
    ///
    /// # Panics
    /// In a model, when the value was dropped before, or is not synchronised with the thread that made it.
    #[cfg_attr(any(loom, shuttle), track_caller)]
    pub fn get(&self) -> &T {
        #[cfg(any(loom, shuttle))]
        register::assert_live(self.id);
        self.access.with(|_| ());
        #[cfg(loom)]
        {
            self.value.get_ref()
        }
        #[cfg(not(loom))]
        {
            &self.value
        }
    }
}

impl<T> Drop for Tracked<T> {
    #[cfg_attr(any(loom, shuttle), track_caller)]
    fn drop(&mut self) {
        // A model that fails already unwinds through here: a second panic would abort it before it is reported.
        if std::thread::panicking() {
            return;
        }
        #[cfg(any(loom, shuttle))]
        register::leave(self.id);
        self.access.with_mut(|_| ());
    }
}

// SAFETY: the cell holds `()`: there is nothing in it that two threads could race for. What is shared is the value.
unsafe impl<T: Sync> Sync for Tracked<T> {}

/// The tracked values of one execution.
#[cfg(any(loom, shuttle))]
pub(crate) mod register {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Register {
        live: BTreeSet<u64>,
        /// Never reused, so that a stale value of an execution that failed is no value of a later one.
        last_id: u64,
    }

    // A checker runs all threads of one execution on one thread of the system, so this is one register an execution.
    std::thread_local! {
        static REGISTER: RefCell<Register> = RefCell::default();
    }

    pub(super) fn enter() -> u64 {
        REGISTER.with_borrow_mut(|register| {
            register.last_id += 1;
            let id = register.last_id;
            register.live.insert(id);
            id
        })
    }

    #[track_caller]
    pub(super) fn assert_live(id: u64) {
        assert!(
            REGISTER.with_borrow(|register| register.live.contains(&id)),
            "tracked value used after its drop"
        );
    }

    #[track_caller]
    pub(super) fn leave(id: u64) {
        assert!(
            REGISTER.with_borrow_mut(|register| register.live.remove(&id)),
            "tracked value dropped twice"
        );
    }

    /// Forgets the values of an execution that failed.
    pub(crate) fn reset() {
        REGISTER.with_borrow_mut(|register| register.live.clear());
    }

    /// Fails when a value outlived its execution; loom finds that out itself.
    #[cfg(shuttle)]
    pub(crate) fn assert_no_leak() {
        let live = REGISTER.with_borrow(|register| register.live.len());
        assert_eq!(live, 0, "tracked values leaked");
    }
}
