//! The built command: what it prints, and how it exits.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run the command as a process, and a failed unwrap fails the test"
)]

use std::process::Command;

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
        for row in
            ["messages, of 128 bytes", "whole run", "sampled maximum backlog", "publish latency, us", "20000"]
        {
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
    for arguments in [&["--messages", "0"][..], &["--producer-threads", "0"], &["--producer-threads", "501"]]
    {
        let (code, out, err) = folio(&[&["perf", "run", SCENARIOS[1], "-q"], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.starts_with("folio: "), "{err}");
    }
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
    assert_eq!(folio(&["perf", "list"]), (Some(0), SCENARIOS.join("\n") + "\n", String::new()));
    let (code, out, _) = folio(&["--help"]);
    assert!(code == Some(0) && out.contains("Folio"), "{out}");
}
