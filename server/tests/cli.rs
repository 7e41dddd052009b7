//! The built command: what it prints, and how it exits.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run the command as a process, and a failed unwrap fails the test"
)]

use std::process::{Command, Stdio};
use std::sync::mpsc;

use bytes::Bytes;
use folio_ledger::store::layer::RealDirectory;
use folio_ledger::store::{Append, Done, FileOptions, FileStore, LogStore};

const SCENARIOS: [&str; 2] = ["key-shared-500x20", "read-completion-isolation"];

/// Runs the command; its exit code, and what it printed.
fn folio(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_folio")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_run_prints_its_table_and_exits_well() {
    for scenario in SCENARIOS {
        let (code, out, err) = folio(&["perf", "run", scenario, "--messages", "20000", "--quiet"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with(scenario), "{out}");
        for row in [
            "messages, of 128 bytes",
            "consumers kept up",
            "whole run",
            "sampled maximum backlog",
            "publish latency, us",
            "20000",
        ] {
            assert!(out.contains(row), "no {row:?} in:\n{out}");
        }
        assert!(out.contains("Correct: all 20000 messages arrived once, whole and in order."), "{out}");
    }
}

#[test]
fn without_a_scenario_all_are_run() {
    let (code, out, _) = folio(&["perf", "run", "--messages", "2000", "-q", "--seed", "7"]);
    assert_eq!(code, Some(0), "{out}");
    for scenario in SCENARIOS {
        assert!(out.contains(scenario), "{out}");
    }
    assert_eq!(out.matches("Correct: all 2000 messages").count(), 2, "{out}");
}

#[test]
fn each_storage_is_named_in_the_table_and_leaves_nothing() {
    let dir = std::env::temp_dir().join(format!("folio-cli-storage-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let at = dir.to_str().unwrap();
    for (switches, named) in [
        (vec!["--dir", at], "synced"),
        (vec!["--dir", at, "--durability", "written", "--cache", "none"], "written"),
        (vec!["--dir", at, "--storage", "memory"], "memory"),
    ] {
        let mut arguments = vec!["perf", "run", SCENARIOS[0], "--messages", "20000", "-q"];
        arguments.extend(switches);
        let (code, out, err) = folio(&arguments);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        let row = out.lines().find(|line| line.trim_start().starts_with("storage ")).unwrap();
        assert!(row.ends_with(named), "{row}");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "the folders of the runs are gone");
    let file = dir.join("file");
    std::fs::write(&file, b"").unwrap();
    let (code, _, err) = folio(&["perf", "run", SCENARIOS[0], "-q", "--dir", file.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(err.contains("no folder could be made"), "{err}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_store_is_looked_at() {
    let dir = std::env::temp_dir().join(format!("folio-cli-inspect-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let at = dir.to_str().unwrap();
    let options = FileOptions { segment_bytes: 1 << 20, ..FileOptions::default() };
    let (store, _) = FileStore::open(RealDirectory::new(&dir), options).unwrap();
    store.create("orders", 7, 1, Done::new(|made| assert_eq!(made, Ok(()))));
    let entries = vec![Bytes::from_static(b"an entry that is found in its file"); 3];
    let append = Append { ledger: 7, epoch: 1, first: 0, entries };
    let (tell, told) = mpsc::channel();
    store.append(append, Done::new(move |appended| tell.send(appended).unwrap()));
    assert_eq!(told.recv().unwrap().unwrap().last, 2);
    let (code, _, err) = folio(&["inspect", at]);
    assert_eq!(code, Some(2), "somebody has it open");
    assert!(err.contains("open elsewhere"), "{err}");
    drop(store);

    let (code, out, err) = folio(&["inspect", at]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("orders") && out.trim_end().ends_with("sound"), "{out}");
    let (code, out, _) = folio(&["inspect", at, "--json"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with('{') && out.trim_end().ends_with('}'), "{out}");

    let mut flipped = 0;
    for file in std::fs::read_dir(&dir).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let wanted = b"an entry that is found";
        if let Some(found) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            bytes[found] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
    let (code, out, _) = folio(&["inspect", at]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("DAMAGED") && out.contains("7:0"), "{out}");
    std::fs::remove_dir_all(&dir).unwrap();

    let (code, _, err) = folio(&["inspect", at]);
    assert_eq!(code, Some(2), "there is no such directory");
    assert!(!err.is_empty());
}

#[test]
fn each_switch_is_named_in_the_table() {
    let switches = ["--completion", "affine", "--handover", "single", "--cache", "none"];
    let mut arguments =
        vec!["perf", "run", SCENARIOS[0], "--messages", "5000", "-q", "--producer-threads", "2"];
    arguments.extend(switches);
    let (code, out, _) = folio(&arguments);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("affine, single, none"), "{out}");
}

#[test]
fn a_planted_fault_is_told_and_exits_with_1() {
    for (plant, says) in [
        ("duplicate", "1 duplicated"),
        ("swap", "1 out of order"),
        ("loss", "1 lost"),
        ("corruption", "1 invalid"),
    ] {
        let (code, out, _) =
            folio(&["perf", "run", SCENARIOS[0], "--messages", "10000", "-q", "--plant", plant]);
        assert_eq!(code, Some(1), "{plant}: {out}");
        assert!(out.contains("WRONG: of 10000 messages ") && out.contains(says), "{plant}: {out}");
        assert_eq!(out.contains("out of order"), plant == "swap", "{plant}: {out}");
    }
}

#[test]
fn a_scenario_that_is_not_there_is_refused_with_the_names_of_those_that_are() {
    let (code, out, err) = folio(&["perf", "run", "key-shared"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    for scenario in SCENARIOS {
        assert!(err.contains(scenario), "{err}");
    }
}

#[test]
fn settings_that_make_no_run_are_told_and_exit_with_2() {
    for (command, option, values, range) in [
        ("run", "--messages", ["0", "1000000001"], "1..=1000000000"),
        ("ideas", "--messages", ["0", "18446744073709551615"], "1..=1000000000"),
        ("run", "--producer-threads", ["0", "65"], "1..=64"),
        ("run", "--consumer-threads", ["0", "4294967297"], "1..=64"),
        ("ideas", "--rounds", ["0", "101"], "1..=100"),
        ("stages", "--batches", ["0", "100001"], "10..=100000"),
    ] {
        for value in values {
            let (code, out, err) = folio(&["perf", command, option, value]);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{option} {value}");
            assert!(err.starts_with("error: ") && err.contains(option) && err.contains(range), "{err}");
        }
    }
    let (code, out, err) = folio(&["perf", "run", "-q", "--messages", "1", "--plant", "swap"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "a fault that would not be planted");
    assert!(err.starts_with("folio: the fault Swap takes 2 messages"), "{err}");
    assert_eq!(folio(&["perf", "run", "--full", "--messages", "1"]).0, Some(2), "one or the other");
    assert_eq!(folio(&["perf"]).0, Some(2));
}

#[test]
fn the_ideas_are_compared_in_a_table() {
    let (code, out, err) = folio(&["perf", "ideas", "--messages", "2000", "--rounds", "2"]);
    assert_eq!(code, Some(0), "{out}");
    let variants = [
        "all three",
        "affine completion",
        "single hand-over",
        "no cache",
        "affine, single hand-over",
        "none of them",
    ];
    for variant in variants {
        assert!(out.contains(&format!("\n{variant} ")), "no {variant:?} in:\n{out}");
        assert!(err.contains(&format!("round 2 of 2: {variant}\n")), "{err}");
    }
    assert!(out.ends_with("Correct: every run.\n"), "{out}");
}

#[test]
fn the_scenarios_are_listed() {
    let (code, out, err) = folio(&["perf", "list"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for (line, scenario) in out.lines().zip(SCENARIOS) {
        let description = line.strip_prefix(scenario).unwrap();
        assert!(description.contains(" 500 producers, "), "{line}");
    }
    assert_eq!(out.lines().count(), SCENARIOS.len());
}

#[test]
fn help_says_how_the_command_ends() {
    for arguments in [
        &["--help"][..],
        &["perf", "--help"],
        &["perf", "run", "--help"],
        &["perf", "run", "-h"],
        &["perf", "ideas", "-h"],
    ] {
        let (code, out, _) = folio(arguments);
        assert_eq!(code, Some(0));
        for ends in ["  0  every message arrived", "  1  some did not", "  2  the command could not"] {
            assert!(out.contains(ends), "no {ends:?} in:\n{out}");
        }
    }
}

/// Runs the command with an end of a pipe that nobody reads as its output, and as its errors.
fn folio_unread(arguments: &[&str], stderr_too: bool) -> (Option<i32>, String) {
    let unread = || {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        Stdio::from(write)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_folio"));
    command.args(arguments).stdout(unread());
    if stderr_too {
        command.stderr(unread());
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn output_that_nobody_reads_ends_the_command_quietly() {
    let run = ["perf", "run", SCENARIOS[0], "-q", "--messages", "2000"];
    for arguments in [
        &run[..],
        &["perf", "run", "-q", "--messages", "2000"],
        &["perf", "ideas", "-q", "--messages", "1000", "--rounds", "1"],
        &["perf", "stages", "--batches", "10"],
        &["perf", "list"],
        &["--help"],
    ] {
        assert_eq!(folio_unread(arguments, false), (Some(0), String::new()), "{arguments:?}");
    }
    let wrong = [&run[..], &["--plant", "loss"]].concat();
    assert_eq!(folio_unread(&wrong, false), (Some(1), String::new()), "what it found counts still");
    assert_eq!(folio_unread(&["perf", "ideas", "--messages", "1000", "--rounds", "1"], true).0, Some(0));
    assert_eq!(folio_unread(&["perf", "run", SCENARIOS[0], "--messages", "0"], true).0, Some(2));
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_told_and_exits_with_2() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_folio")).args(["perf", "list"]).stdout(full).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with("folio: the output could not be written: "), "{told}");
}
