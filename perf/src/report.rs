//! What a run measured, and whether anything was wrong.

use std::fmt;

use hdrhistogram::Histogram;

use crate::settings::Settings;
use crate::verify::Violations;
use crate::window::Window;

/// What is wrong with a run, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Messages that were given to the broker.
    pub sent: u64,
    /// Messages that arrived, each counted once.
    pub unique: u64,
    /// Messages that the broker did not take.
    pub failed: u64,
    /// Messages that never arrived.
    pub lost: u64,
    /// Whose.
    pub lost_of: Vec<u32>,
    /// What was wrong with those that arrived.
    pub violations: Violations,
    /// The run did not come to its end: nothing arrived for too long.
    pub stalled: bool,
}

impl Verdict {
    /// Whether every message arrived once, whole and in order.
    pub fn is_good(&self) -> bool {
        let found = &self.violations;
        self.failed + self.lost + found.duplicates + found.disorders + found.invalid == 0
            && self.unique == self.sent
            && !self.stalled
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.violations;
        if self.is_good() {
            return write!(f, "Correct: all {} messages arrived once, whole and in order.", self.sent);
        }
        write!(f, "WRONG: of {} messages {} arrived:", self.sent, self.unique)?;
        for (count, what) in [
            (self.lost, "lost"),
            (found.duplicates, "duplicated"),
            (found.disorders, "out of order"),
            (found.invalid, "invalid"),
            (self.failed, "not taken by the broker"),
        ] {
            if count > 0 {
                write!(f, " {count} {what};")?;
            }
        }
        if self.stalled {
            f.write_str(" nothing arrived for too long;")?;
        }
        if !self.lost_of.is_empty() {
            let first: Vec<_> = self.lost_of.iter().take(5).map(u32::to_string).collect();
            write!(f, " lost messages are of producers {};", first.join(", "))?;
        }
        for sample in &found.samples {
            write!(f, "\n  {sample}")?;
        }
        Ok(())
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub settings: Settings,
    /// Whether anything was wrong.
    pub verdict: Verdict,
    /// Seconds from the first message to the last one received.
    pub seconds: f64,
    /// Seconds in which messages were sent.
    pub sending: f64,
    /// The steady part, if the run was long enough to have one.
    pub window: Option<Window>,
    /// The most messages that were published and not received at any sample.
    pub most_backlog: u64,
    /// How often that was sampled.
    pub samples: usize,
    /// Processor time of the whole process, producers and consumers included, a message.
    pub cpu_nanos: f64,
    /// Entries that were read from the cache, and from storage.
    pub reads: (u64, u64),
    /// Messages that went to the ledger's worker with one submission, on average.
    pub batch: f64,
    /// From sending to the acknowledgement, in microseconds.
    pub publish: Histogram<u64>,
    /// From sending to the consumer, in microseconds.
    pub end_to_end: Histogram<u64>,
}

/// How well consumers kept up with producers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptUp {
    /// Messages received of those published, in the steady window.
    pub egress: f64,
    /// The most messages that were published and not received at any sample.
    pub backlog: u64,
    /// As many as may be outstanding, in receive queues, and published in 50 ms.
    pub bound: u64,
}

impl KeptUp {
    /// How much of what is published is received at least by who keeps up: the gate for the whole system.
    pub const LEAST_EGRESS: f64 = 0.97;

    /// Whether they did.
    pub fn is_good(&self) -> bool {
        self.egress >= Self::LEAST_EGRESS && self.backlog <= self.bound
    }
}

impl fmt::Display for KeptUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { egress, backlog, bound } = self;
        if self.is_good() {
            return write!(
                f,
                "yes: egress is {egress:.3} of ingress, the backlog within its bound of {bound}"
            );
        }
        write!(f, "no: egress is {egress:.3} of ingress")?;
        if backlog > bound {
            write!(f, ", and the backlog came to {backlog}, above its bound of {bound}")?;
        }
        Ok(())
    }
}

impl Report {
    /// How well consumers kept up; unknown if the run was too short to have a steady window.
    pub fn kept_up(&self) -> Option<KeptUp> {
        let window = self.window?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, of few messages"
        )]
        let in_50_ms = (window.ingress * 0.05) as u64;
        Some(KeptUp {
            egress: window.egress / window.ingress,
            backlog: self.most_backlog,
            bound: self.settings.on_their_way() + in_50_ms,
        })
    }

    /// Messages received a second in the steady window, or over the whole run if it has none.
    pub fn egress(&self) -> f64 {
        self.window.map_or(self.settings.messages as f64 / self.seconds, |window| window.egress)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        let row = |f: &mut fmt::Formatter<'_>, what: &str, value: String| writeln!(f, "  {what:<34} {value}");
        writeln!(f, "{}", settings.scenario)?;
        row(f, "messages, of 128 bytes", settings.messages.to_string())?;
        row(
            f,
            "producers x outstanding, consumers",
            format!("{} x {}, {}", settings.producers, settings.outstanding, settings.consumers),
        )?;
        let most = settings.max_unread;
        let hold = if most == 0 { "never".to_owned() } else { format!("above {most} unread") };
        row(f, "producers hold back", hold)?;
        row(f, "storage", format!("{:?}", settings.storage).to_lowercase())?;
        row(
            f,
            "completion, hand-over, cache",
            format!("{:?}, {:?}, {:?}", settings.completion, settings.handover, settings.cache)
                .to_lowercase(),
        )?;
        row(f, "seconds, sending and in all", format!("{:.2}, {:.2}", self.sending, self.seconds))?;
        match self.window {
            Some(window) => {
                row(f, "steady window", format!("{:.1} s", window.seconds))?;
                row(f, "  ingress", format!("{:.0} messages/s", window.ingress))?;
                row(
                    f,
                    "  egress",
                    format!(
                        "{:.0} messages/s, {:.3} of ingress",
                        window.egress,
                        window.egress / window.ingress
                    ),
                )?;
            }
            None => row(f, "steady window", "none: the run was too short".to_owned())?,
        }
        let kept_up = self
            .kept_up()
            .map_or("not known: the run was too short".to_owned(), |kept_up| kept_up.to_string());
        row(f, "consumers kept up", kept_up)?;
        row(f, "whole run", format!("{:.0} messages/s", settings.messages as f64 / self.seconds))?;
        row(f, "sampled maximum backlog", format!("{} (of {} samples)", self.most_backlog, self.samples))?;
        row(f, "processor time a message", format!("{:.0} ns, load included", self.cpu_nanos))?;
        row(f, "messages a hand-over", format!("{:.1}", self.batch))?;
        row(f, "read from cache, from storage", format!("{}, {}", self.reads.0, self.reads.1))?;
        for (what, histogram) in
            [("publish latency, us", &self.publish), ("end-to-end latency, us", &self.end_to_end)]
        {
            let at = |quantile| histogram.value_at_quantile(quantile);
            row(
                f,
                what,
                format!("p50 {}, p99 {}, p99.9 {}, max {}", at(0.5), at(0.99), at(0.999), histogram.max()),
            )?;
        }
        write!(f, "{}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_kept_up_is_said_in_words() {
        for (egress, backlog, good, says) in [
            (0.99, 100, true, "yes: egress is 0.990 of ingress, the backlog within its bound of 100"),
            (0.96, 100, false, "no: egress is 0.960 of ingress"),
            (
                1.0,
                101,
                false,
                "no: egress is 1.000 of ingress, and the backlog came to 101, above its bound of 100",
            ),
            (f64::NAN, 0, false, "no: egress is NaN of ingress"),
        ] {
            let kept_up = KeptUp { egress, backlog, bound: 100 };
            assert_eq!((kept_up.is_good(), kept_up.to_string().as_str()), (good, says));
        }
    }
}
