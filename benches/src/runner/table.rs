//! Tables that a person can read.

use std::fmt;

/// A table of text; the first column is aligned to the left, the others to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub fn new(titles: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(titles.iter().map(ToString::to_string).collect());
        table
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether there is nothing below the titles.
    pub fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let padded = |(column, cell): (usize, &String)| {
                let width = widths[column];
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            };
            let line: Vec<String> = row.iter().enumerate().map(padded).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
            if number == 0 {
                let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                writeln!(f, "{}", "-".repeat(total))?;
            }
        }
        Ok(())
    }
}

/// A figure with about three digits.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    let digits = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 0.1 || size == 0.0 {
        2
    } else {
        4
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["case", "ns"]);
        table.row(vec!["a longer one".into(), "7".into()]);
        let lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines, ["case          ns", "----------------", "a longer one   7"]);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown = [0.0, 0.003_14, 0.75, 12.34, 13_600.4].map(short);
        assert_eq!(shown, ["0.00", "0.0031", "0.75", "12.3", "13600"]);
    }
}
