//! The one way in which compositions are run under shuttle.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

#[cfg(shuttle)]
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
#[cfg(shuttle)]
use shuttle::{Config, Runner};

use super::inject;
#[cfg(shuttle)]
use super::tracked::register;

/// The variable that replays a run; shuttle's own schedulers obey it too.
const SEED: &str = "SHUTTLE_RANDOM_SEED";

/// How many changes of priority a PCT schedule makes, plus one: faults of this kind need few.
const PCT_DEPTH: usize = 3;

/// A thread of a checked body needs more than shuttle's default in debug builds.
const STACK_BYTES: usize = 256 * 1024;

/// Runs a body under shuttle: `iterations` random schedules, then as many PCT schedules.
///
/// There under `--cfg shuttle` only.
///
/// The seed of the whole run is printed before it begins. `SHUTTLE_RANDOM_SEED=<seed>` in the environment replays the run from there,
/// random and PCT schedules both; a failing random schedule prints a seed of its own, which makes that schedule the first of the
/// replay. The body must be deterministic apart from its schedule.
///
/// # Panics
/// When a schedule fails, when it leaks a [`Tracked`](super::Tracked) value, when there are fewer than two iterations, or when the
/// body never had two threads to choose from.
pub fn shuttle_check(name: &str, iterations: usize, body: impl Fn() + Send + Sync + 'static) {
    assert!(iterations >= 2, "shuttle {name}: {iterations} iterations show nothing");
    let seed = seed();
    println!(
        "shuttle {name}: seed {seed} ({SEED}={seed} replays), {iterations} random and {iterations} PCT schedules"
    );
    let body = std::sync::Arc::new(body);
    run(&body, RandomScheduler::new_from_seed(seed, iterations), name, "random", iterations);
    run(&body, PctScheduler::new_from_seed(seed, PCT_DEPTH, iterations), name, "PCT", iterations);
    println!("shuttle {name}: passed");
}

#[cfg(shuttle)]
fn run(
    body: &std::sync::Arc<impl Fn() + Send + Sync + 'static>,
    scheduler: impl Scheduler + 'static,
    name: &str,
    kind: impl fmt::Display,
    iterations: usize,
) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let body = std::sync::Arc::clone(body);
    register::reset();
    let ran = Runner::new(scheduler, config).run(move || {
        // An execution that failed may have left its injection behind.
        inject::reset();
        // Threads of the body may outlive it, so a leak shows at the end of the execution, which is here.
        register::assert_no_leak();
        body();
    });
    register::assert_no_leak();
    assert_eq!(ran, iterations, "shuttle {name}: not every {kind} schedule was run");
}

/// The seed from the environment, or a fresh one.
fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text.parse().expect("SHUTTLE_RANDOM_SEED is a number"),
        Err(_) => RandomState::new().hash_one(std::time::SystemTime::now()),
    }
}
