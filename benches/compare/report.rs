//! Lines for people and for `plot.py`, tab-separated: group, subject, measure, value, ratio, the lowest
//! and the highest ratio, and the number of rounds.
//!
//! Subjects that are compared take turns, round after round. The value is the median of a subject's
//! rounds; a ratio is that to the group's first subject in the same round, so that what else the machine
//! does in the course of a run falls upon both. What cannot be divided has no ratio.

/// What was measured of several subjects, printed when this is dropped.
pub(crate) struct Group {
    name: String,
    series: Vec<Series>,
}

struct Series {
    subject: String,
    measure: &'static str,
    values: Vec<f64>,
}

impl Group {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            series: Vec::new(),
        }
    }

    /// One round's value.
    pub(crate) fn add(&mut self, subject: &str, measure: &'static str, value: f64) {
        let known = self
            .series
            .iter_mut()
            .find(|series| series.subject == subject && series.measure == measure);
        match known {
            Some(series) => series.values.push(value),
            None => self.series.push(Series {
                subject: subject.to_owned(),
                measure,
                values: vec![value],
            }),
        }
    }

    /// Says at once what is not measured, and why.
    pub(crate) fn skip(&self, subject: &str, why: &str) {
        println!("{}\t{subject}\tskipped\t{why}", self.name);
    }

    fn first(&self, measure: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.measure == measure)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for series in &self.series {
            let Series {
                subject,
                measure,
                values,
            } = series;
            let first = self.first(measure).map_or(&[][..], |first| &first.values);
            let ratios = values.iter().zip(first).map(|(value, first)| value / first);
            let ratios = sorted(ratios.filter(|ratio| ratio.is_finite()));
            let text = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |r| format!("{r:.2}"));
            let [ratio, low, high] = [
                median(&ratios),
                ratios.first().copied(),
                ratios.last().copied(),
            ]
            .map(text);
            let value = median(&sorted(values.iter().copied())).unwrap_or(f64::NAN);
            let (name, rounds) = (&self.name, values.len());
            println!("{name}\t{subject}\t{measure}\t{value:.3}\t{ratio}\t{low}\t{high}\t{rounds}");
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 0 => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}
