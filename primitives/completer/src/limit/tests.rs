//! Every form of the limit, as the variable may be written.

use std::ffi::OsStr;

use super::DepthLimitSource::{Default, Environment, Malformed, Raised};
use super::{UNREAD, interpret, pack, unpack};

#[test]
fn a_limit_is_read_in_every_form() {
    for (text, limit, source) in [
        ("37", 37, Environment),
        ("+37", 37, Environment),
        ("1", 1, Environment),
        ("2147483647", 2_147_483_647, Environment),
        ("0x10", 16, Environment),
        ("0X1f", 31, Environment),
        ("0x7fffffff", 2_147_483_647, Environment),
        ("010", 8, Environment),
        ("0o17", 15, Environment),
        ("0O17", 15, Environment),
        ("0", 1, Raised),
        ("00", 1, Raised),
        ("0x0", 1, Raised),
        ("-0", 1, Raised),
        ("-1", 1, Raised),
        ("-0x10", 1, Raised),
        ("-2147483648", 1, Raised),
    ] {
        assert_eq!(interpret(Some(OsStr::new(text))), (limit, source), "{text:?}");
    }
}

#[test]
fn a_malformed_limit_means_the_default() {
    for text in [
        "",
        " ",
        "invalid",
        "1 0",
        " 10",
        "10 ",
        "1_0",
        "1.5",
        "-",
        "+",
        "0x",
        "0o",
        "-0x",
        "08",
        "0o8",
        "0xg",
        "--1",
        "+-1",
        "0x-1",
        "0o+1",
        "0-1",
        "2147483648",
        "-2147483649",
        "0x80000000",
        "99999999999999999999",
        "١٠",
        "∞",
    ] {
        assert_eq!(interpret(Some(OsStr::new(text))), (10, Malformed), "{text:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_limit_that_is_not_even_text_is_malformed() {
    use std::os::unix::ffi::OsStrExt;

    assert_eq!(interpret(Some(OsStr::from_bytes(b"\xff1"))), (10, Malformed));
}

#[test]
fn no_limit_means_the_default() {
    assert_eq!(interpret(None), (10, Default));
}

#[test]
fn a_limit_and_its_source_are_one_word() {
    for source in [Default, Environment, Raised, Malformed] {
        for limit in [1, 10, 2_147_483_647, u32::MAX] {
            assert_ne!(pack(limit, source), UNREAD);
            assert_eq!(unpack(pack(limit, source)), (limit, source));
        }
    }
}
