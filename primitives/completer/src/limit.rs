//! The depth limit of a process.
//!
//! # Guarantees
//! Every call of a process gives the same limit. Once it was read, a call is one load and allocates nothing; until then it is the
//! reading of the variable, which no thread waits for another to do.
//!
//! # Protocol
//! | state | next | who moves it |
//! |---|---|---|
//! | unread | read: limit and source, for good | the first of the threads that have read the variable; it alone complains |
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | load, exchange | the limit | Relaxed | | the word is all there is to see |
//!
//! # Limits
//! **A departure from the rule that atomics come from the switch**: this one is the standard library's. A `static` needs a `const`
//! constructor, which the switch's atomics have not under a checker, and a value of the process outlives each execution of a model.
//! So no model sees this word; it publishes nothing but itself.

use std::ffi::OsStr;
use std::io::Write;

use folio_sync::atomic::Ordering;

/// The environment variable that sets the depth limit of a process.
pub const DEPTH_LIMIT_VARIABLE: &str = "FOLIO_MAX_COMPLETION_DEPTH";

/// The depth limit of a process that sets none.
pub const DEFAULT_DEPTH_LIMIT: u32 = 10;

/// Where the depth limit of this process comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DepthLimitSource {
    /// The variable is not set: [`DEFAULT_DEPTH_LIMIT`].
    Default,
    /// The variable, as it is written.
    Environment,
    /// The variable says zero or less: 1.
    Raised,
    /// The variable cannot be read as a number: [`DEFAULT_DEPTH_LIMIT`].
    Malformed,
}

/// The depth limit of completers whose builder sets none.
///
/// Taken from the environment variable `FOLIO_MAX_COMPLETION_DEPTH` once per process, when it is first needed; of threads that first
/// need it at the same time, one takes it for all. The variable is a number in the range of an `i32`: decimal, hexadecimal after `0x`
/// or octal after `0` or `0o`, with a sign if it likes. Zero and negative numbers mean 1. Anything else means 10, and one line on
/// standard error says so.
///
/// ```
/// assert!(folio_completer::depth_limit() >= 1);
/// ```
pub fn depth_limit() -> u32 {
    of_process().0
}

/// Where [`depth_limit`] comes from.
pub fn depth_limit_source() -> DepthLimitSource {
    of_process().1
}

/// The word that [`pack`] never makes: nobody has read the variable yet.
const UNREAD: u64 = 0;

/// What [`pack`] made for this process.
#[allow(
    clippy::disallowed_types,
    reason = "a static needs a const constructor, which the switch's atomics have not under a checker"
)]
static LIMIT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(UNREAD);

fn of_process() -> (u32, DepthLimitSource) {
    // Relaxed: the word is all there is to see.
    match LIMIT.load(Ordering::Relaxed) {
        UNREAD => read_for_all(),
        word => unpack(word),
    }
}

/// Reads the variable. Whoever is the first to fill the word has read it for all, and alone complains.
#[cold]
fn read_for_all() -> (u32, DepthLimitSource) {
    let value = std::env::var_os(DEPTH_LIMIT_VARIABLE);
    let (limit, source) = interpret(value.as_deref());
    // Relaxed, also when another was first: the word is all there is to see.
    if let Err(first) =
        LIMIT.compare_exchange(UNREAD, pack(limit, source), Ordering::Relaxed, Ordering::Relaxed)
    {
        return unpack(first);
    }
    if source == DepthLimitSource::Malformed {
        let value = value.unwrap_or_default();
        // Where nobody hears standard error the source still tells.
        let _unheard = writeln!(
            std::io::stderr(),
            "{DEPTH_LIMIT_VARIABLE}: `{}` is not a number that fits an i32; the depth limit is {limit}",
            value.display()
        );
    }
    (limit, source)
}

/// A limit, which is never zero, above two bits for its source.
fn pack(limit: u32, source: DepthLimitSource) -> u64 {
    let source = match source {
        DepthLimitSource::Default => 0,
        DepthLimitSource::Environment => 1,
        DepthLimitSource::Raised => 2,
        DepthLimitSource::Malformed => 3,
    };
    (u64::from(limit) << 2) | source
}

fn unpack(word: u64) -> (u32, DepthLimitSource) {
    let source = match word & 3 {
        0 => DepthLimitSource::Default,
        1 => DepthLimitSource::Environment,
        2 => DepthLimitSource::Raised,
        _ => DepthLimitSource::Malformed,
    };
    (u32::try_from(word >> 2).expect("a limit has 32 bits"), source)
}

fn interpret(value: Option<&OsStr>) -> (u32, DepthLimitSource) {
    let Some(value) = value else { return (DEFAULT_DEPTH_LIMIT, DepthLimitSource::Default) };
    match value.to_str().and_then(parse) {
        None => (DEFAULT_DEPTH_LIMIT, DepthLimitSource::Malformed),
        Some(number) => match u32::try_from(number) {
            Ok(limit) if limit > 0 => (limit, DepthLimitSource::Environment),
            _ => (1, DepthLimitSource::Raised),
        },
    }
}

/// A number in one of the accepted forms that fits an `i32`.
fn parse(text: &str) -> Option<i32> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = if let Some(digits) = strip_either(unsigned, "0x", "0X") {
        (digits, 16)
    } else if let Some(digits) = strip_either(unsigned, "0o", "0O") {
        (digits, 8)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        (&unsigned[1..], 8)
    } else {
        (unsigned, 10)
    };
    // The standard parser would take a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i64::from_str_radix(digits, radix).ok()?;
    i32::try_from(if negative { -magnitude } else { magnitude }).ok()
}

fn strip_either<'a>(text: &'a str, one: &str, other: &str) -> Option<&'a str> {
    text.strip_prefix(one).or_else(|| text.strip_prefix(other))
}

#[cfg(test)]
mod tests;
