//! The process-wide limit, read in processes of their own.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use folio_completer::{DEPTH_LIMIT_VARIABLE, InlineCompleter, depth_limit, depth_limit_source};
use folio_sync::test_util::ManualExecutor;

/// What a process with this variable says on standard output, and how many lines on standard error name the variable.
fn process(value: Option<&OsStr>) -> (String, usize) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "in_a_child_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env_remove(DEPTH_LIMIT_VARIABLE);
    if let Some(value) = value {
        command.env(DEPTH_LIMIT_VARIABLE, value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.lines().find_map(|line| line.split("limit: ").nth(1)).unwrap_or_else(|| panic!("{said}"));
    let complaints = String::from_utf8(output.stderr)
        .unwrap()
        .lines()
        .filter(|line| line.contains(DEPTH_LIMIT_VARIABLE))
        .count();
    (line.to_owned(), complaints)
}

/// 1.13, 4.7, I31, R3: every form of the limit, told by its source, and complained about once if it is malformed.
#[test]
fn the_limit_of_a_process_is_read_in_every_form() {
    assert_eq!(process(None), ("10 Default".to_owned(), 0));
    for (value, expected, complaints) in [
        ("37", "37 Environment", 0),
        ("1", "1 Environment", 0),
        ("0x10", "16 Environment", 0),
        ("010", "8 Environment", 0),
        ("0o10", "8 Environment", 0),
        ("2147483647", "2147483647 Environment", 0),
        ("0", "1 Raised", 0),
        ("-1", "1 Raised", 0),
        ("", "10 Malformed", 1),
        ("invalid", "10 Malformed", 1),
        ("08", "10 Malformed", 1),
        ("2147483648", "10 Malformed", 1),
    ] {
        assert_eq!(process(Some(OsStr::new(value))), (expected.to_owned(), complaints), "{value:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_limit_that_is_not_text_is_malformed() {
    use std::os::unix::ffi::OsStrExt;

    assert_eq!(process(Some(OsStr::from_bytes(b"\xff"))), ("10 Malformed".to_owned(), 1));
}

#[test]
fn a_builder_sets_another_limit() {
    let limit = |builder: folio_completer::Builder| builder.build().depth_limit();
    let builder = || InlineCompleter::builder(folio_completer::Policy::Affine, ManualExecutor::new());
    assert_eq!(limit(builder()), depth_limit());
    assert_eq!(limit(builder().depth_limit(3)), 3);
    assert_eq!(limit(builder().depth_limit(0)), 1);
}

#[test]
#[ignore = "the child of another test"]
fn in_a_child_process() {
    // All need it first, at the same time.
    static ASKING: AtomicUsize = AtomicUsize::new(0);
    let asking: [_; 4] = std::array::from_fn(|_| {
        thread::spawn(|| {
            ASKING.fetch_add(1, Ordering::Relaxed);
            while ASKING.load(Ordering::Relaxed) < 4 {
                std::hint::spin_loop();
            }
            (depth_limit(), depth_limit_source())
        })
    });
    for asked in asking {
        assert_eq!(asked.join().unwrap(), (depth_limit(), depth_limit_source()));
    }
    let completer = InlineCompleter::affine(ManualExecutor::new());
    assert_eq!(completer.depth_limit(), depth_limit());
    println!("\nlimit: {} {:?}", depth_limit(), depth_limit_source());
    // Read once: what the variable says later changes nothing, and nothing is complained about again.
    let limit = depth_limit();
    // SAFETY: the only test of this process, which runs on the only thread that is left.
    unsafe { std::env::set_var(DEPTH_LIMIT_VARIABLE, "not a number, and not read") };
    assert_eq!((depth_limit(), InlineCompleter::affine(ManualExecutor::new()).depth_limit()), (limit, limit));
}
