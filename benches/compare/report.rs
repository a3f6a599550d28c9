//! Lines for people and for `plot.py`.

use std::collections::HashMap;

/// Prints measures, each with its ratio to the first subject's in the group.
pub(crate) struct Group {
    name: &'static str,
    first: HashMap<String, f64>,
}

impl Group {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            first: HashMap::new(),
        }
    }

    pub(crate) fn line(&mut self, subject: &str, measure: &str, value: f64) {
        let first = *self.first.entry(measure.to_owned()).or_insert(value);
        let ratio = value / first;
        println!(
            "{}\t{subject}\t{measure}\t{value:.3}\t{ratio:.2}",
            self.name
        );
    }
}
