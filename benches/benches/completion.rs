//! Exploring inline completion with criterion; what is judged is in the ratio runner.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    missing_docs,
    reason = "benchmarks run on real threads; the macros of criterion make undocumented functions"
)]

use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use folio_benches::groups::completion::bodies;
use mimalloc::MiMalloc;

/// The allocator of the judged runs, without their counter.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn completion(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inline completion");
    let mut add = |name: &str, mut body: Box<dyn FnMut(u64)>| {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let start = Instant::now();
                body(iterations);
                start.elapsed()
            });
        });
    };
    add("InlineCompleter", Box::new(bodies::inline_completer(bodies::Plain)));
    add("plain boxed call", Box::new(bodies::boxed_call(bodies::Plain)));
    add("typed call, hand-written guard", Box::new(bodies::guarded_call(bodies::Plain)));
    group.finish();
}

criterion_group!(benches, completion);
criterion_main!(benches);
