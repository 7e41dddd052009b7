//! Thread-local values of the checker in use.

/// Declares one thread-local value: `thread_local! { static NAME: Type = expression; }`.
///
/// Without a checker the expression must be constant, so that reaching the value costs no lazy initialisation. Models run all their
/// threads on one thread of the system: state that belongs to a thread must be declared by this macro.
#[macro_export]
macro_rules! thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr;) => {
        $crate::__thread_local! { $(#[$attr])* $vis static $name: $type = $init; }
    };
}

#[doc(hidden)]
#[cfg(not(any(loom, shuttle)))]
#[macro_export]
macro_rules! __thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr;) => {
        ::std::thread_local! { $(#[$attr])* $vis static $name: $type = const { $init }; }
    };
}

#[doc(hidden)]
#[cfg(loom)]
#[macro_export]
macro_rules! __thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr;) => {
        $crate::__private::loom::thread_local! { $(#[$attr])* $vis static $name: $type = $init; }
    };
}

#[doc(hidden)]
#[cfg(shuttle)]
#[macro_export]
macro_rules! __thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr;) => {
        $crate::__private::shuttle::thread_local! { $(#[$attr])* $vis static $name: $type = $init; }
    };
}
