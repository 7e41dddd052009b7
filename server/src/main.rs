//! The `folio` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use folio_perf::ideas::Comparison;
use folio_perf::{Cache, Completion, Handover, Plant, RunError, Scenario, Settings, run};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Folio: lock-free building blocks for log brokers, and a broker made of them.
#[derive(Debug, Parser)]
#[command(name = "folio", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Performance scenarios with verified delivery.
    Perf {
        #[command(subcommand)]
        command: Perf,
    },
}

#[derive(Debug, Subcommand)]
enum Perf {
    /// Run a scenario; without one, both.
    Run(Run),
    /// Run a scenario in turns with and without each of the project's three ideas.
    Ideas(Ideas),
    /// Say what each stage of a message's way costs, taken one after the other on one thread.
    Stages {
        /// Batches of 1,000 messages.
        #[arg(long, default_value_t = 1_000)]
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
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Debug, Args)]
struct Size {
    /// Messages in all; 2 million by default.
    #[arg(long, conflicts_with = "full")]
    messages: Option<u64>,
    /// 12 million messages and 2,000 keys a producer.
    #[arg(long)]
    full: bool,
    /// Threads that drive the producers.
    #[arg(long, default_value_t = 1)]
    producer_threads: usize,
    /// Threads that drive the consumers.
    #[arg(long, default_value_t = 1)]
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

fn main() -> ExitCode {
    let Command::Perf { command } = Cli::parse().command;
    let good = match command {
        Perf::Run(options) => run_scenarios(&options),
        Perf::Ideas(options) => ideas(&options),
        Perf::Stages { batches } => match folio_perf::stages::stages(batches.max(10)) {
            Ok(stages) => {
                println!("{stages}");
                Ok(true)
            }
            Err(why) => {
                eprintln!("folio: {why}");
                Ok(false)
            }
        },
        Perf::List => {
            for scenario in Scenario::ALL {
                println!("{scenario}");
            }
            Ok(true)
        }
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("folio: {error}");
            ExitCode::from(2)
        }
    }
}

fn run_scenarios(options: &Run) -> Result<bool, RunError> {
    let scenarios = options.scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    let mut good = true;
    for scenario in scenarios {
        let mut settings = options.size.settings(scenario);
        settings.max_unread = options.max_unread;
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
        println!("{report}\n");
        good &= report.verdict.is_good();
    }
    Ok(good)
}

fn ideas(options: &Ideas) -> Result<bool, RunError> {
    let mut settings = options.size.settings(options.scenario);
    settings.progress = false;
    let mut comparison = Comparison::new(&settings);
    for round in 0..options.rounds.max(1) {
        comparison.round(round, |variant| {
            if !options.size.quiet {
                eprintln!("  round {} of {}: {variant}", round + 1, options.rounds.max(1));
            }
        })?;
    }
    println!("{comparison}");
    Ok(comparison.is_good())
}
