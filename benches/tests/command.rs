//! The command fails when it must: run as a process, with planted groups.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests of a command are not model-checked"
)]

use std::process::{Command, Output};

fn folio_benches(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_folio-benches")).args(arguments).output().expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_hanging_case_ends_the_run_and_is_named() {
    let output = folio_benches(&["selftest", "hang"]);
    assert_eq!(output.status.code(), Some(folio_benches::runner::HANG_EXIT_CODE));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("hang: planted/planted/case"), "{said}");
}

#[test]
fn a_missed_gate_fails_the_run() {
    let output = folio_benches(&["selftest", "slow"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("MISSED"), "{}", stdout(&output));
}

#[test]
fn too_few_rounds_judge_no_time_but_allocations() {
    let output = folio_benches(&["selftest", "slow", "--rounds", "14"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert!(text.contains("not judged") && !text.contains("MISSED"), "{text}");
    let output = folio_benches(&["selftest", "allocation", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

#[test]
fn the_targets_of_several_groups_are_one_table_at_the_end() {
    let only = ["--only", "1 producer, unbounded/", "--only", "inline"];
    let output = folio_benches(&[&["ratios", "--smoke"], &only[..], &["handover", "completion"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert_eq!(text.matches(": targets ==").count(), 1, "{text}");
    let (_, table) = text.split_once("== handover, completion: targets ==").expect("it is for both");
    assert!(!table.contains("== "), "nothing comes after it: {text}");
    assert!(table.contains("\nhandover: ") && table.contains("\ncompletion: "), "{table}");
}

#[test]
fn met_gates_let_the_run_pass() {
    let output = folio_benches(&["selftest", "quick"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(!stdout(&output).contains("MISSED"), "{}", stdout(&output));
}

#[test]
fn an_allocation_where_none_is_allowed_is_counted_and_fails_the_run() {
    let output = folio_benches(&["selftest", "allocation"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let row = text.lines().find(|line| line.starts_with("planted allocations")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["planted", "allocations", "gate", "0.0500", "1.00", "1.00", "1.00", "MISSED"]);
}

#[test]
fn a_filter_that_fits_no_case_is_an_error() {
    let output = folio_benches(&["ratios", "--smoke", "--only", "no-such-case", "floors"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_filtered_smoke_run_runs_those_cases_only_and_judges_no_time() {
    let output =
        folio_benches(&["ratios", "--smoke", "--only", "1 producer, unbounded/typed crossbeam", "handover"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert!(
        text.contains("1 producer, unbounded/typed crossbeam-channel") && !text.contains("kanal"),
        "{text}"
    );
    assert!(!text.contains("MISSED"), "{text}");
}

#[test]
fn an_unknown_group_is_an_error_that_names_the_groups() {
    let output = folio_benches(&["ratios", "--smoke", "no-such-group"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("floors"), "{said}");
}
