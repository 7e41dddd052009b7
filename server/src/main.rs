//! The `folio` command.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use folio_ledger::store::{OpenError, inspect};
use folio_perf::ideas::Comparison;
use folio_perf::stages::{BATCHES, stages};
use folio_perf::{Cache, Completion, Handover, Plant, RunError, Scenario, Settings, Storage, run};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How the command ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  every message arrived once, whole and in order; a store is sound
  1  some did not, or it is not; the output says which
  2  the command could not begin, or could not print";

/// Folio: lock-free building blocks for log brokers, and a broker made of them.
#[derive(Debug, Parser)]
#[command(name = "folio", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Performance scenarios with verified delivery.
    #[command(after_help = EXIT_CODES)]
    Perf {
        #[command(subcommand)]
        command: Perf,
    },
    /// Look at a store in files: its ledgers, and whether every byte of them is sound.
    #[command(after_help = EXIT_CODES)]
    Inspect {
        /// The store's directory, which nobody has open.
        dir: PathBuf,
        /// One object of JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Takes a number in this range.
fn between(range: RangeInclusive<usize>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(*range.start() as u64..=*range.end() as u64)
}

#[derive(Debug, Subcommand)]
enum Perf {
    /// Run a scenario; without one, both.
    #[command(after_help = EXIT_CODES)]
    Run(Run),
    /// Run a scenario in turns with and without each of the project's three ideas.
    #[command(after_help = EXIT_CODES)]
    Ideas(Ideas),
    /// Say what each stage of a message's way costs, taken one after the other on one thread.
    #[command(after_help = EXIT_CODES)]
    Stages {
        /// Batches of 1,000 messages.
        #[arg(long, default_value_t = 1_000, value_parser = between(BATCHES))]
        batches: usize,
    },
    /// List the scenarios.
    List,
}

#[derive(Debug, Args)]
struct Run {
    /// key-shared-500x20 or read-completion-isolation.
    scenario: Option<Scenario>,
    #[command(flatten)]
    size: Size,
    /// Producers hold back while the subscription has more unread messages; 0: never.
    #[arg(long, default_value_t = Settings::MAX_UNREAD)]
    max_unread: u64,
    /// Where messages are stored: in files, in a folder of their own that is removed afterwards, or in memory.
    #[arg(long, value_enum, default_value_t = StorageName::File)]
    storage: StorageName,
    /// What a message in a file has survived when it is acknowledged: the loss of power, or the end of the process.
    #[arg(long, value_enum, default_value_t = DurabilityName::Synced)]
    durability: DurabilityName,
    /// Where that folder is made; where the system has such folders unless it is given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where reads complete: on the thread that asks, or on the ledger's worker.
    #[arg(long, value_enum, default_value_t = CompletionName::Inline)]
    completion: CompletionName,
    /// How appends go to the ledger's worker: many with one submission, or each by itself.
    #[arg(long, value_enum, default_value_t = HandoverName::Batched)]
    handover: HandoverName,
    /// Where reads find recent entries: in the range cache, or in storage only.
    #[arg(long, value_enum, default_value_t = CacheName::Paged)]
    cache: CacheName,
    /// Plant a fault half-way, to see that it is reported.
    #[arg(long, value_enum)]
    plant: Option<PlantName>,
}

#[derive(Debug, Args)]
struct Ideas {
    /// key-shared-500x20 or read-completion-isolation.
    #[arg(default_value_t = Scenario::KeyShared)]
    scenario: Scenario,
    #[command(flatten)]
    size: Size,
    /// How often each variant runs.
    #[arg(long, default_value_t = 3, value_parser = between(1..=100))]
    rounds: usize,
}

#[derive(Debug, Args)]
struct Size {
    /// Messages in all; 2 million by default.
    #[arg(long, conflicts_with = "full", value_parser = value_parser!(u64).range(1..=Settings::MOST_MESSAGES))]
    messages: Option<u64>,
    /// 12 million messages and 2,000 keys a producer.
    #[arg(long)]
    full: bool,
    /// Threads that drive the producers.
    #[arg(long, default_value_t = 1, value_parser = between(1..=Settings::MOST_THREADS))]
    producer_threads: usize,
    /// Threads that drive the consumers.
    #[arg(long, default_value_t = 1, value_parser = between(1..=Settings::MOST_THREADS))]
    consumer_threads: usize,
    /// Seeds what is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No line of progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionName {
    Inline,
    Affine,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HandoverName {
    Batched,
    Single,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CacheName {
    Paged,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StorageName {
    File,
    Memory,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityName {
    Synced,
    Written,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlantName {
    Duplicate,
    Swap,
    Loss,
    Corruption,
}

impl Size {
    fn settings(&self, scenario: Scenario) -> Settings {
        let mut settings = Settings::new(scenario);
        if self.full {
            settings.messages = Settings::FULL;
            settings.keys_per_producer = 2_000;
        }
        settings.messages = self.messages.unwrap_or(settings.messages);
        settings.producer_threads = self.producer_threads;
        settings.consumer_threads = self.consumer_threads;
        settings.seed = self.seed;
        settings.progress = !self.quiet;
        settings
    }
}

/// Why the command ends early.
#[derive(Debug)]
enum Failure {
    Run(RunError),
    /// A store could not be looked at.
    Open(OpenError),
    /// What it found could not be printed.
    Output(io::Error),
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    // What was wrong so far, should the output end before the command does.
    let mut good = true;
    let result = match Cli::parse().command {
        Command::Perf { command: Perf::Run(options) } => run_scenarios(&options, &mut good),
        Command::Perf { command: Perf::Ideas(options) } => ideas(&options, &mut good),
        Command::Perf { command: Perf::Stages { batches } } => {
            stages(batches).map_err(Failure::from).and_then(|stages| print(&stages))
        }
        Command::Perf { command: Perf::List } => list(),
        Command::Inspect { dir, json } => look(&dir, json, &mut good),
    };
    match result {
        // Whoever read the output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(Failure::Output(error)) => {
            return fail(2, &format_args!("the output could not be written: {error}"));
        }
        Err(Failure::Run(error @ RunError::Wrong(_))) => return fail(1, &error),
        Err(Failure::Run(error)) => return fail(2, &error),
        Err(Failure::Open(error)) => return fail(2, &error),
        Ok(()) => {}
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what kept the command from its end.
fn fail(code: u8, why: &dyn fmt::Display) -> ExitCode {
    tell(format_args!("folio: {why}"));
    ExitCode::from(code)
}

/// Prints a result, which the reader may not wait for.
fn print(what: &dyn fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

/// Says something beside the result; nobody may be there to read it.
fn tell(what: fmt::Arguments<'_>) {
    let _told = writeln!(io::stderr(), "{what}");
}

fn list() -> Result<(), Failure> {
    for scenario in Scenario::ALL {
        print(&format_args!("{:<27} {}", scenario.name(), scenario.description()))?;
    }
    Ok(())
}

fn run_scenarios(options: &Run, good: &mut bool) -> Result<(), Failure> {
    let scenarios = options.scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    for scenario in scenarios {
        let mut settings = options.size.settings(scenario);
        settings.max_unread = options.max_unread;
        settings.storage = match (options.storage, options.durability) {
            (StorageName::Memory, _) => Storage::Memory,
            (StorageName::File, DurabilityName::Synced) => Storage::Synced,
            (StorageName::File, DurabilityName::Written) => Storage::Written,
        };
        settings.dir.clone_from(&options.dir);
        settings.completion = match options.completion {
            CompletionName::Inline => Completion::Inline,
            CompletionName::Affine => Completion::Affine,
        };
        settings.handover = match options.handover {
            HandoverName::Batched => Handover::Batched,
            HandoverName::Single => Handover::Single,
        };
        settings.cache = match options.cache {
            CacheName::Paged => Cache::Paged,
            CacheName::None => Cache::None,
        };
        settings.plant = options.plant.map(|plant| match plant {
            PlantName::Duplicate => Plant::Duplicate,
            PlantName::Swap => Plant::Swap,
            PlantName::Loss => Plant::Loss,
            PlantName::Corruption => Plant::Corruption,
        });
        let report = run(&settings)?;
        *good &= report.verdict.is_good();
        print(&format_args!("{report}\n"))?;
    }
    Ok(())
}

fn look(dir: &Path, json: bool, good: &mut bool) -> Result<(), Failure> {
    let inspection = inspect(dir)?;
    *good = inspection.is_sound();
    if json { print(&inspection.to_json().trim_end()) } else { print(&inspection) }
}

fn ideas(options: &Ideas, good: &mut bool) -> Result<(), Failure> {
    let mut settings = options.size.settings(options.scenario);
    settings.progress = false;
    let mut comparison = Comparison::new(&settings);
    for round in 0..options.rounds {
        comparison.round(round, |variant| {
            if !options.size.quiet {
                tell(format_args!("  round {} of {}: {variant}", round + 1, options.rounds));
            }
        })?;
    }
    *good = comparison.is_good();
    print(&comparison)
}
