//! What is sampled while a run goes on, and the steady part of it.

use std::time::Duration;

/// How often a run is sampled.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// The steady window begins at the latest so long after the begin.
const LATEST: f64 = 20.0;

/// The state of a run at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Seconds since the begin.
    pub(crate) at: f64,
    /// Messages published and confirmed.
    pub(crate) published: u64,
    /// Messages that consumers received.
    pub(crate) received: u64,
}

/// The steady part of a run: from a fifth of the time in which messages were sent to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// How long it is, in seconds.
    pub seconds: f64,
    /// Messages published in it, a second.
    pub ingress: f64,
    /// Messages received in it, a second.
    pub egress: f64,
}

/// The steady window of a run whose last message was sent at `sent_all`, in seconds; none if there are too few samples.
pub(crate) fn steady(samples: &[Sample], sent_all: f64) -> Option<Window> {
    let begin = (sent_all / 5.0).min(LATEST);
    let inside: Vec<_> = samples.iter().filter(|sample| (begin..=sent_all).contains(&sample.at)).collect();
    let (first, last) = (inside.first()?, inside.last()?);
    let seconds = last.at - first.at;
    if seconds <= 0.0 {
        return None;
    }
    let rate = |from: u64, to: u64| (to - from) as f64 / seconds;
    Some(Window {
        seconds,
        ingress: rate(first.published, last.published),
        egress: rate(first.received, last.received),
    })
}

/// The most messages that were published and not received at any sample.
pub(crate) fn most_backlog(samples: &[Sample]) -> u64 {
    samples.iter().map(|sample| sample.published.saturating_sub(sample.received)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_leaves_out_the_first_fifth_and_what_comes_after_the_last_message_was_sent() {
        let sample = |at, published, received| Sample { at, published, received };
        let samples = [
            sample(0.5, 9, 0),
            sample(1.0, 10, 5),
            sample(3.0, 30, 15),
            sample(5.0, 50, 45),
            sample(6.0, 50, 50),
        ];
        let window = steady(&samples, 5.0).expect("there are samples");
        assert_eq!(window, Window { seconds: 4.0, ingress: 10.0, egress: 10.0 });
        assert_eq!(most_backlog(&samples), 15);
        assert_eq!(steady(&samples[..1], 5.0), None);
        assert_eq!(steady(&samples, 200.0).map(|window| window.seconds), None, "at most 20 s are left out");
    }
}
