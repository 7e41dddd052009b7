//! The clocks of a trial.

use std::time::{Duration, Instant};

use folio_sync::test_util::alloc::Counts;
use rustix::time::{ClockId, clock_gettime};

use super::ratio::to_f64;
use super::{Metric, Sample};

/// One moment: elapsed time, CPU time of all threads so far, allocations so far.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    wall: Instant,
    cpu: Duration,
    counts: Counts,
}

impl Mark {
    /// This moment.
    pub fn now() -> Self {
        Self { counts: Counts::now(), cpu: process_cpu(), wall: Instant::now() }
    }
}

/// CPU time that all threads of this process have used, the ended ones too.
fn process_cpu() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Such a clock starts at zero and its nanoseconds are below 10^9.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// One moment of one thread: elapsed time, and the CPU time of the calling thread so far.
///
/// For a trial whose threads do different work, each of which has a figure of its own. Allocations are not told apart by thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadMark {
    wall: Instant,
    cpu: Duration,
}

impl ThreadMark {
    /// This moment of the calling thread.
    pub fn now() -> Self {
        Self { cpu: cpu_time(ClockId::ThreadCPUTime), wall: Instant::now() }
    }

    /// From an earlier moment of the calling thread until now.
    pub fn elapsed(self) -> ThreadTime {
        let now = Self::now();
        ThreadTime { cpu: now.cpu.saturating_sub(self.cpu), wall: now.wall.duration_since(self.wall) }
    }
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTime {
    cpu: Duration,
    wall: Duration,
}

impl ThreadTime {
    /// Without a part of it.
    #[must_use]
    pub fn without(self, part: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(part.cpu), wall: self.wall.saturating_sub(part.wall) }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, wall: self.wall + other.wall }
    }

    /// For each of `operations`.
    ///
    /// # Panics
    /// When `operations` is 0.
    pub fn sample(self, operations: u64) -> Sample {
        assert!(operations > 0, "a trial without an operation measures nothing");
        let each = |total: Duration| nanoseconds(total) / to_f64(operations);
        Sample::new().with(Metric::Cpu, each(self.cpu)).with(Metric::Wall, each(self.wall))
    }
}

/// What happened between two marks, for each of `operations`.
///
/// # Panics
/// When `operations` is 0.
pub fn sample_between(start: Mark, end: Mark, operations: u64) -> Sample {
    assert!(operations > 0, "a trial without an operation measures nothing");
    let each = |total: f64| total / to_f64(operations);
    let counts = end.counts - start.counts;
    Sample::new()
        .with(Metric::Cpu, each(nanoseconds(end.cpu.saturating_sub(start.cpu))))
        .with(Metric::Wall, each(nanoseconds(end.wall.duration_since(start.wall))))
        .with(Metric::Allocations, each(to_f64(counts.allocations)))
        .with(Metric::AllocatedBytes, each(to_f64(counts.allocated_bytes)))
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_every_thread() {
        let burn = || {
            let end = process_cpu() + Duration::from_millis(5);
            let mut turns = 0_u64;
            while process_cpu() < end {
                turns = std::hint::black_box(turns + 1);
            }
        };
        let start = Mark::now();
        std::thread::spawn(burn).join().unwrap();
        let sample = sample_between(start, Mark::now(), 1);
        assert!(sample.get(Metric::Cpu).unwrap() >= 5e6, "{sample:?}");
    }

    #[test]
    fn a_thread_does_not_see_what_another_one_burns() {
        let start = ThreadMark::now();
        std::thread::spawn(|| {
            let start = process_cpu();
            while process_cpu() < start + Duration::from_millis(5) {}
        })
        .join()
        .unwrap();
        let other = start.elapsed();
        let start = ThreadMark::now();
        while start.elapsed().cpu < Duration::from_millis(5) {}
        let own = start.elapsed();
        assert!(other.cpu < Duration::from_millis(5), "{other:?}");
        let sample = own.and(own).without(own).sample(1_000);
        assert!(sample.get(Metric::Cpu).unwrap() >= 5e3, "{sample:?}");
    }

    #[test]
    fn sleeping_takes_wall_time_and_no_cpu_time_of_its_own() {
        let start = Mark::now();
        std::thread::sleep(Duration::from_millis(20));
        let sample = sample_between(start, Mark::now(), 1);
        assert!(sample.get(Metric::Wall).unwrap() >= 20e6, "{sample:?}");
    }
}
