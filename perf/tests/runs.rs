//! Runs of the scenarios: clean ones are correct under every switch, and planted faults are found as what they are.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "scenarios run on the machine's own threads and clock, and a failed unwrap fails the test"
)]

use folio_perf::ideas::Comparison;
use folio_perf::{
    Cache, Completion, Handover, Plant, Report, RunError, Scenario, Settings, Verdict, Window, run,
};

const MESSAGES: u64 = 50_000;

fn settings(scenario: Scenario) -> Settings {
    let mut settings = Settings::new(scenario);
    settings.messages = MESSAGES;
    settings.keys_per_producer = 20;
    settings
}

#[track_caller]
fn correct(settings: &Settings) -> Report {
    let report = run(settings).unwrap();
    let verdict = &report.verdict;
    assert!(verdict.is_good(), "{verdict}");
    let messages = settings.messages;
    assert_eq!((verdict.sent, verdict.unique, verdict.failed, verdict.lost), (messages, messages, 0, 0));
    assert_eq!(
        verdict.to_string(),
        format!("Correct: all {messages} messages arrived once, whole and in order.")
    );
    assert_eq!(
        (report.publish.len(), report.end_to_end.len()),
        (messages, messages),
        "each latency is recorded"
    );
    assert_eq!(report.reads.0 + report.reads.1, messages, "each message is read once");
    let table = report.to_string();
    for row in [
        "messages a hand-over",
        "consumers kept up",
        "processor time a message",
        "end-to-end latency",
        "Correct:",
    ] {
        assert!(table.contains(row), "no {row:?} in:\n{table}");
    }
    report
}

#[test]
fn each_scenario_is_correct() {
    for scenario in Scenario::ALL {
        let report = correct(&settings(scenario));
        assert!(report.reads.0 > MESSAGES / 2, "{scenario}: {:?} were read", report.reads);
        assert!(report.batch > 1.0, "{scenario}: {} messages a hand-over", report.batch);
    }
}

#[test]
fn producers_hold_back_while_much_is_unread() {
    let mut settings = settings(Scenario::ReadCompletionIsolation);
    (settings.messages, settings.producers, settings.outstanding) = (5_000, 10, 1);
    settings.receive_queue = 100;
    settings.max_unread = 50;
    let report = correct(&settings);
    // Unread as the last producer looked, each producer's one message, and what the consumer has.
    assert!(report.most_backlog <= 50 + 10 + 100, "{} were on their way", report.most_backlog);
}

#[test]
fn each_switch_is_correct() {
    for scenario in Scenario::ALL {
        let mut affine = settings(scenario);
        affine.completion = Completion::Affine;
        correct(&affine);
        let mut single = settings(scenario);
        single.handover = Handover::Single;
        let batch = correct(&single).batch;
        assert!((0.9..=1.0).contains(&batch), "{batch} messages a hand-over");
        let mut uncached = settings(scenario);
        uncached.cache = Cache::None;
        assert_eq!(correct(&uncached).reads, (0, MESSAGES));
        let mut none = single;
        (none.completion, none.cache) = (Completion::Affine, Cache::None);
        correct(&none);
    }
}

#[test]
fn several_threads_and_small_numbers_are_correct() {
    let mut threads = settings(Scenario::KeyShared);
    (threads.producer_threads, threads.consumer_threads, threads.messages) = (3, 2, 50_001);
    correct(&threads);
    for scenario in Scenario::ALL {
        let mut one = settings(scenario);
        (one.messages, one.producers, one.outstanding, one.keys_per_producer, one.receive_queue) =
            (1, 1, 1, 1, 1);
        correct(&one);
        one.messages = 500;
        correct(&one);
        let mut fewer = settings(scenario);
        fewer.messages = 30;
        correct(&fewer);
    }
}

/// Runs with a fault planted; its verdict, which says so.
fn planted(scenario: Scenario, plant: Plant, says: &str) -> Verdict {
    let mut settings = settings(scenario);
    settings.plant = Some(plant);
    let verdict = run(&settings).unwrap().verdict;
    let text = verdict.to_string();
    assert!(!verdict.is_good(), "{plant:?} was not found in {scenario}");
    assert!(text.starts_with("WRONG: of 50000 messages ") && text.contains(says), "{scenario}: {text}");
    assert_eq!((verdict.failed, verdict.stalled), (0, false), "{scenario}: {text}");
    verdict
}

#[test]
fn a_planted_duplicate_is_found() {
    for scenario in Scenario::ALL {
        let verdict = planted(scenario, Plant::Duplicate, " 1 duplicated;");
        let found = &verdict.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid), (1, 0, 0), "{verdict}");
        assert_eq!((verdict.unique, verdict.lost), (MESSAGES, 0), "{verdict}");
        assert!(verdict.to_string().contains("Duplicate: entry "), "{verdict}");
    }
}

#[test]
fn a_planted_swap_is_found() {
    for scenario in Scenario::ALL {
        let verdict = planted(scenario, Plant::Swap, " 1 out of order;");
        let found = &verdict.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid), (0, 1, 0), "{verdict}");
        assert_eq!((verdict.unique, verdict.lost), (MESSAGES, 0), "{verdict}");
    }
}

#[test]
fn a_planted_loss_is_found() {
    for scenario in Scenario::ALL {
        let verdict = planted(scenario, Plant::Loss, " 1 lost;");
        let found = &verdict.violations;
        assert_eq!(
            (found.duplicates, found.disorders, found.invalid),
            (0, 0, 0),
            "those after it are in order: {verdict}"
        );
        assert_eq!((verdict.unique, verdict.lost, verdict.lost_of.len()), (MESSAGES - 1, 1, 1), "{verdict}");
        assert!(verdict.to_string().contains(&format!("of producers {};", verdict.lost_of[0])), "{verdict}");
    }
}

#[test]
fn a_planted_corruption_is_found() {
    for scenario in Scenario::ALL {
        let verdict = planted(scenario, Plant::Corruption, " 1 invalid;");
        let found = &verdict.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid), (0, 0, 1), "{verdict}");
        assert_eq!(
            (verdict.unique, verdict.lost),
            (MESSAGES - 1, 1),
            "what cannot be read has not arrived: {verdict}"
        );
    }
}

#[test]
fn faults_are_planted_in_the_smallest_runs_that_are_not_refused() {
    for scenario in Scenario::ALL {
        for plant in [Plant::Duplicate, Plant::Swap, Plant::Loss, Plant::Corruption] {
            let mut settings = settings(scenario);
            settings.plant = Some(plant);
            (settings.messages, settings.outstanding) =
                (plant.needs(), u32::try_from(plant.needs()).unwrap());
            let verdict = run(&settings).unwrap().verdict;
            assert!(!verdict.is_good(), "{plant:?} was not found in {scenario}");
            // Most producers come after their share is sent.
            (settings.messages, settings.producers, settings.keys_per_producer) = (7, 3, 1);
            let verdict = run(&settings).unwrap().verdict;
            assert!(!verdict.is_good(), "{plant:?} was not found in {scenario}");
        }
    }
}

#[test]
fn settings_that_make_no_run_are_refused() {
    let refused = |scenario, change: fn(&mut Settings)| {
        let mut settings = settings(scenario);
        change(&mut settings);
        match run(&settings) {
            Err(RunError::Settings(why)) => why,
            other => panic!("{settings:?} came to {:?}", other.map(|report| report.verdict)),
        }
    };
    let changes: [fn(&mut Settings); 18] = [
        |settings| settings.messages = 0,
        |settings| settings.messages = Settings::MOST_MESSAGES + 1,
        |settings| settings.producers = 0,
        |settings| settings.consumers = 0,
        |settings| settings.outstanding = 0,
        |settings| settings.outstanding = 65,
        |settings| settings.keys_per_producer = 0,
        |settings| settings.keys_per_producer = u32::MAX,
        |settings| settings.keys_per_producer = Settings::MOST_KEYS / 500 + 1,
        |settings| settings.producer_threads = 0,
        |settings| settings.producer_threads = Settings::MOST_THREADS + 1,
        |settings| (settings.producers, settings.producer_threads) = (2, 3),
        |settings| settings.consumer_threads = 0,
        |settings| settings.consumer_threads = Settings::MOST_THREADS + 1,
        // Faults that would not be planted.
        |settings| (settings.plant, settings.messages) = (Some(Plant::Swap), 1),
        |settings| (settings.plant, settings.outstanding) = (Some(Plant::Swap), 1),
        |settings| settings.receive_queue = 0,
        |settings| settings.consumers = 65_537,
    ];
    for change in changes {
        assert!(!refused(Scenario::KeyShared, change).is_empty());
    }
    let why = refused(Scenario::ReadCompletionIsolation, |settings| settings.consumers = 2);
    assert_eq!(why, "an exclusive subscription has one consumer");
}

#[test]
fn ideas_are_compared_in_alternating_runs() {
    let mut base = settings(Scenario::KeyShared);
    base.messages = 5_000;
    let mut comparison = Comparison::new(&base);
    let told = std::cell::RefCell::new(Vec::new());
    for round in 0..2 {
        comparison.round(round, |variant| told.borrow_mut().push(variant.to_owned())).unwrap();
    }
    assert!(comparison.is_good(), "{comparison}");
    let (told, table) = (told.into_inner(), comparison.to_string());
    assert_eq!(comparison.variants.len(), 6);
    assert_eq!(
        (&told[0], &told[6], &told[11]),
        (&told[11], &told[1], &told[0]),
        "the next round starts elsewhere"
    );
    for variant in &comparison.variants {
        assert_eq!(variant.reports.len(), 2);
        assert!(table.contains(variant.name), "{table}");
    }
    let settings: Vec<_> = comparison
        .variants
        .iter()
        .map(|variant| &variant.reports[0].settings)
        .map(|settings| (settings.completion, settings.handover, settings.cache))
        .collect();
    let (inline, affine) = (Completion::Inline, Completion::Affine);
    let (batched, single) = (Handover::Batched, Handover::Single);
    assert_eq!(
        settings,
        [
            (inline, batched, Cache::Paged),
            (affine, batched, Cache::Paged),
            (inline, single, Cache::Paged),
            (inline, batched, Cache::None),
            (affine, single, Cache::Paged),
            (affine, single, Cache::None),
        ]
    );
    assert!(table.ends_with("Correct: every run."), "{table}");
    comparison.variants[1].reports[0].window = None;
    comparison.variants[2].reports.iter_mut().for_each(|report| report.window = Some(Window::default()));
    let table = comparison.to_string();
    let line = |name| table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(
        line("affine completion ").contains(" * ") && !line("single hand-over ").contains('*'),
        "{table}"
    );
    assert!(table.contains("\n* A run was too short for a steady window"), "{table}");
}
