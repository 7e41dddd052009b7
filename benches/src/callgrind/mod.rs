//! Instructions an operation, counted by callgrind.
//!
//! The count of a single-threaded path is the same run after run, where its time is not. Each [kernel](kernels) runs twice under
//! `valgrind --tool=callgrind`, with n and with 2n operations; the difference, divided by n, is what one more operation costs, without
//! the start of the process. What is compared with the committed figure is its ratio to a reference kernel of the same run, so that
//! another compiler or standard library moves both.
//!
//! Valgrind is started directly, not through gungraun: that one needs a runner binary of the very same version installed on every
//! machine, and the two subtractions above are all that is wanted of it.

mod expected;
mod kernels;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use expected::{Expected, Figure};
use folio_sync::test_util::alloc;

use crate::runner::{Table, to_f64};

/// Operations of the shorter run.
const OPERATIONS: u64 = 100_000;

/// The committed figures.
fn expected_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("callgrind.expected")
}

/// Runs one kernel in this process; what valgrind executes.
pub fn run_kernel(name: &str, operations: u64) -> ExitCode {
    let Some(kernel) = kernels::ALL.iter().find(|kernel| kernel.name == name) else {
        eprintln!("there is no kernel {name:?}");
        return ExitCode::from(2);
    };
    alloc::pause();
    (kernel.run)(operations);
    ExitCode::SUCCESS
}

/// Counts all kernels and compares them with the committed figures, or commits them if `bless`.
///
/// The exit code is a failure when a kernel is more than 3 % above its figure or has none. Without valgrind it is a success, and the
/// output says skipped.
pub fn run(bless: bool) -> ExitCode {
    let installed =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        println!("callgrind skipped: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    if folio_sync::pause::COMPILED_IN {
        eprintln!(
            "this build has the pause points of the test features in the code under test: build -p folio-benches alone"
        );
        return ExitCode::from(2);
    }
    match count_all().and_then(|figures| conclude(&figures, bless)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("callgrind: {error}");
            ExitCode::FAILURE
        }
    }
}

fn conclude(figures: &[Figure], bless: bool) -> io::Result<ExitCode> {
    let build = expected::this_build();
    let mut expected = Expected::parse(&fs::read_to_string(expected_path())?).map_err(io::Error::other)?;
    if bless {
        expected.bless(build, figures);
        fs::write(expected_path(), expected.to_text())?;
    }
    let mut table = Table::new(&["kernel", "instructions/op", "of reference", "expected", "verdict"]);
    let mut good = true;
    for verdict in expected.compare(build, figures) {
        good &= verdict.is_good();
        table.row(verdict.cells());
    }
    print!("{table}");
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Marginal instructions of every kernel, with the ratio to the reference.
fn count_all() -> io::Result<Vec<Figure>> {
    let mut counted = Vec::new();
    for kernel in kernels::ALL {
        eprintln!("callgrind: {}", kernel.name);
        let once = instructions(kernel.name, OPERATIONS)?;
        let twice = instructions(kernel.name, 2 * OPERATIONS)?;
        counted.push((kernel.name, to_f64(twice.saturating_sub(once)) / to_f64(OPERATIONS)));
    }
    let reference = counted.iter().find(|(name, _)| *name == kernels::REFERENCE).map(|&(_, count)| count);
    let Some(reference) = reference.filter(|&count| count > 0.0) else {
        return Err(io::Error::other("the reference kernel was not counted"));
    };
    let figure =
        |(name, instructions): (&str, f64)| Figure::new(name, instructions, instructions / reference);
    Ok(counted.into_iter().map(figure).collect())
}

/// Instructions of one run of a kernel, as callgrind counts them.
fn instructions(kernel: &str, operations: u64) -> io::Result<u64> {
    let out = env::temp_dir().join(format!("folio-callgrind-{}-{kernel}-{operations}", std::process::id()));
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe()?)
        .args(["kernel", kernel, &operations.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "valgrind ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let text = fs::read_to_string(&out)?;
    fs::remove_file(&out)?;
    total(&text).ok_or_else(|| io::Error::other(format!("{} has no totals line", out.display())))
}

/// The count in the last line of a callgrind file that begins with `totals:`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_end_of_the_file() {
        assert_eq!(total("events: Ir\nfn=(1) main\n7 40\n\ntotals: 12345\n"), Some(12_345));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn every_kernel_runs() {
        for kernel in kernels::ALL {
            (kernel.run)(2_500);
        }
    }

    #[test]
    fn every_kernel_has_a_committed_figure_and_every_figure_a_kernel() {
        let expected = Expected::parse(&fs::read_to_string(expected_path()).unwrap()).unwrap();
        let mut kernels: Vec<&str> = kernels::ALL.iter().map(|kernel| kernel.name).collect();
        kernels.sort_unstable();
        for build in expected::BUILDS {
            assert_eq!(expected.names(build).collect::<Vec<_>>(), kernels, "{build}");
        }
    }
}
