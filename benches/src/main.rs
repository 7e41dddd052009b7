//! The command that runs and judges the rows: see the library's documentation.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "nothing here is model-checked: benchmarks run on the standard library's own threads, atomics and clock"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use folio_benches::runner::{self, Effort, Group, Judged, Settings, Verdict, Watchdog};
use folio_benches::selftest::{self, Planted};
use folio_benches::{callgrind, groups};
use folio_sync::test_util::alloc::Counting;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting::new(MiMalloc);

/// Interleaved ratios and instruction counts of the Folio crates.
#[derive(Debug, Parser)]
#[command(name = "folio-benches")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run groups of cases in turns and judge their rows.
    Ratios(Ratios),
    /// Count instructions an operation under valgrind and compare them with the committed figures.
    Callgrind {
        /// Write the figures of this run as the expected ones.
        #[arg(long)]
        bless: bool,
    },
    /// Run the operations of one kernel; what `callgrind` executes under valgrind.
    #[command(hide = true)]
    Kernel { name: String, operations: u64 },
    /// Run a planted group, to see that the command fails when it must.
    #[command(hide = true)]
    Selftest {
        planted: PlantedName,
        /// As of `ratios`.
        #[arg(long)]
        rounds: Option<usize>,
    },
}

#[derive(Debug, Args)]
struct Ratios {
    /// Show that everything runs and judge the allocation rows; no times.
    #[arg(long)]
    smoke: bool,
    /// Timed rounds; of fewer than 15 only allocations are judged.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only cases whose `block/case` contains this text; may be given more than once.
    #[arg(long)]
    only: Vec<String>,
    /// A trial that takes longer is a hang.
    #[arg(long, default_value_t = 60)]
    trial_limit_seconds: u64,
    /// The groups to run; all of them without a name.
    groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlantedName {
    Hang,
    Slow,
    Quick,
    Allocation,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Ratios(options) => ratios(&options),
        Command::Callgrind { bless } => callgrind::run(bless),
        Command::Kernel { name, operations } => callgrind::run_kernel(&name, operations),
        Command::Selftest { planted, rounds } => {
            let planted = match planted {
                PlantedName::Hang => Planted::Hang,
                PlantedName::Slow => Planted::SlowCase,
                PlantedName::Quick => Planted::QuickCase,
                PlantedName::Allocation => Planted::Allocation,
            };
            let mut settings = Settings { counted_rounds: 1, ..Settings::full() };
            settings.rounds = rounds.unwrap_or(settings.rounds).max(1);
            let watchdog =
                Watchdog::exiting(Duration::from_secs(if planted == Planted::Hang { 1 } else { 60 }));
            let group = selftest::group(planted);
            let name = group.name;
            let judged = run_group(group, &settings, &watchdog, true);
            exit_code(report_targets(&[(name, judged)], true))
        }
    }
}

fn ratios(options: &Ratios) -> ExitCode {
    if folio_sync::pause::COMPILED_IN && !options.smoke {
        eprintln!(
            "this build has the pause points of the test features in the code under test: build -p folio-benches alone"
        );
        return ExitCode::from(2);
    }
    let mut settings = if options.smoke { Settings::smoke() } else { Settings::full() };
    settings.rounds = options.rounds.unwrap_or(settings.rounds).max(1);
    if !options.smoke && cfg!(debug_assertions) {
        eprintln!("note: built with debug assertions; the times say nothing about a release");
    }
    if !options.smoke && settings.rounds < Settings::FULL_ROUNDS {
        eprintln!("note: {} timed rounds are too few to judge times by", settings.rounds);
    }
    let names = if options.groups.is_empty() {
        groups::NAMES.map(str::to_owned).to_vec()
    } else {
        options.groups.clone()
    };
    if let Some(unknown) = names.iter().find(|name| !groups::NAMES.contains(&name.as_str())) {
        eprintln!("there is no group {unknown:?}; there are {}", groups::NAMES.join(", "));
        return ExitCode::from(2);
    }
    let watchdog = Watchdog::exiting(Duration::from_secs(options.trial_limit_seconds.max(1)));
    let complete = options.only.is_empty();
    let mut ran = Vec::new();
    for mut group in names.iter().filter_map(|name| groups::by_name(name)) {
        group.keep_only(&options.only);
        if !group.blocks.is_empty() {
            ran.push((group.name, run_group(group, &settings, &watchdog, complete)));
        }
    }
    if ran.is_empty() {
        eprintln!("no case of these groups contains {:?}", options.only);
        return ExitCode::from(2);
    }
    exit_code(report_targets(&ran, complete))
}

/// Runs, prints and judges one group.
fn run_group(mut group: Group, settings: &Settings, watchdog: &Watchdog, complete: bool) -> Vec<Judged> {
    let name = group.name;
    let report = runner::run(&mut group, settings, watchdog, |round, total| {
        eprintln!("{name}: round {} of {total}", round + 1);
    });
    match settings.effort {
        Effort::Full => {
            println!(
                "\n== {name}: figures of {} rounds, {}, scale {:.2} ==",
                settings.rounds,
                runner::machine(),
                report.scale()
            );
            print!("{}", runner::figures(&report));
            if let Some(why) = runner::why_marked(&report) {
                println!("{why}");
            }
        }
        Effort::Smoke => {
            println!("\n== {name}: everything ran; allocations ==");
            print!("{}", runner::allocations(&report));
        }
    }
    let mut judged = runner::judge(&report, &group.targets, settings);
    judged.retain(|row| complete || row.verdict != Verdict::NotMeasured);
    judged
}

/// Prints the targets of all groups in one table; whether no gate was missed.
fn report_targets(groups: &[(&str, Vec<Judged>)], complete: bool) -> bool {
    let several = groups.len() > 1;
    let judged: Vec<Judged> = groups
        .iter()
        .flat_map(|(group, judged)| {
            judged.iter().map(move |row| {
                let name = if several { format!("{group}: {}", row.name) } else { row.name.clone() };
                Judged { name, ..row.clone() }
            })
        })
        .collect();
    if !judged.is_empty() {
        let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
        println!("\n== {}: targets ==", names.join(", "));
        print!("{}", runner::verdicts(&judged));
    }
    !runner::any_gate_missed(&judged, complete)
}

fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
