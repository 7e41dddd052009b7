//! Medians, means and ranges.

/// The median of a row's rounds, with the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value; the mean of the two middle ones of an even number.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

impl Spread {
    /// Of some values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min, max })
    }
}

/// The geometric mean; `None` of nothing.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / to_f64(values.len() as u64)).exp())
}

/// A count as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of trials stay far below 2^52, and figures need three digits"
)]
pub fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value_whatever_the_order() {
        let spread = Spread::of(&[9.0, 1.0, 4.0]).unwrap();
        assert_eq!(spread, Spread { median: 4.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of(&[8.0, 2.0, 4.0, 100.0]).unwrap();
        assert_eq!(spread, Spread { median: 6.0, min: 2.0, max: 100.0 });
    }

    #[test]
    fn nothing_has_no_median_and_no_mean() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn geometric_mean_weighs_ratios_not_sums() {
        let mean = geometric_mean(&[1.0, 100.0]).unwrap();
        assert!((mean - 10.0).abs() < 1e-9, "{mean}");
    }
}
