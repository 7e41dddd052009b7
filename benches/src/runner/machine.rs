//! Which machine the figures are of.

use std::fs;
use std::thread;

/// The processor and how many of it there are, as far as the system says.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = thread::available_parallelism().map_or(1, usize::from);
    format!("{count} x {}", model_name(&cpuinfo).unwrap_or("unknown processor"))
}

fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_where_the_system_names_it() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 1.0GHz\nflags\t: a b\n";
        assert_eq!(model_name(cpuinfo), Some("Some CPU @ 1.0GHz"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}
