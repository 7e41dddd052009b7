//! Exploring the hand-over with criterion; what is judged is in the ratio runner.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    missing_docs,
    reason = "benchmarks run on real threads; the macros of criterion make undocumented functions"
)]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use folio_benches::groups::handover::{Regime, Setting, explored};
use folio_benches::runner::{Metric, to_f64};
use mimalloc::MiMalloc;

/// Tasks a trial.
const TASKS: u64 = 20_000;

/// The allocator of the judged runs, without their counter.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn handover(criterion: &mut Criterion) {
    for setting in Setting::ALL.into_iter().filter(|setting| setting.producers == 2) {
        let regime = if setting.regime == Regime::Unbounded { "unbounded" } else { "512 outstanding" };
        let mut group = criterion.benchmark_group(format!("handover, 2 producers, {regime}"));
        group.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(2));
        for (name, trial) in explored() {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|iterations| {
                    let sample = trial(setting, iterations.clamp(TASKS, 50 * TASKS));
                    let each = sample.get(Metric::Wall).expect("every trial reports wall time");
                    Duration::from_secs_f64(each * to_f64(iterations) / 1e9)
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, handover);
criterion_main!(benches);
