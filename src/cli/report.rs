//! A check's findings, for people.

use super::terminal::{Paint, Tone, printable};
use crate::admin::{Finding, Report, Verdict};

/// Width of the verdict's and the subject's columns, the blanks after them included.
const VERDICT: usize = 6;
const SUBJECT: usize = 15;

/// A line per finding with its advice below, then the ticks, then what it all comes to.
pub(crate) fn render(report: &Report, paint: Paint) -> String {
    let margin = " ".repeat(VERDICT + SUBJECT);
    let mut text = String::new();
    for finding in &report.findings {
        let Finding {
            verdict,
            subject,
            text: what,
            advice,
        } = finding;
        let (word, tone) = verdict_word(*verdict);
        text.push_str(&paint.apply(tone, word));
        text.push_str(&" ".repeat(VERDICT - word.len()));
        text.push_str(&format!("{subject:<SUBJECT$}{}\n", printable(what)));
        if let Some(advice) = advice {
            text.push_str(&format!("{margin}-> {}\n", printable(advice)));
        }
    }
    for (n, tick) in report.ticks.iter().enumerate() {
        let subject = if n == 0 { "next ticks" } else { "" };
        text.push_str(&" ".repeat(VERDICT));
        text.push_str(&format!("{subject:<SUBJECT$}{tick}\n"));
    }
    let count = |verdict| {
        let found = report.findings.iter().filter(|f| f.verdict == verdict);
        found.count()
    };
    let (warnings, failures) = (count(Verdict::Warn), count(Verdict::Fail));
    let (summary, tone) = match (failures, warnings) {
        (0, 0) => ("a run would work".to_owned(), Tone::Good),
        (0, n) => (format!("a run would work; warnings: {n}"), Tone::Doubtful),
        (n, _) => (format!("a run would fail; failures: {n}"), Tone::Bad),
    };
    text.push_str(&format!("\n{}\n", paint.apply(tone, &summary)));
    text
}

fn verdict_word(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::Ok => ("ok", Tone::Good),
        Verdict::Warn => ("warn", Tone::Doubtful),
        Verdict::Fail => ("fail", Tone::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_its_finding_and_ticks_at_the_end() {
        let report = Report {
            findings: vec![
                Finding::ok("connection", "db:5432"),
                Finding::warn("clock", "2 s ahead\n", "use NTP"),
            ],
            ticks: vec!["Mon".to_owned(), "Tue".to_owned()],
        };
        assert_eq!(
            render(&report, Paint::coloured(false)),
            "\
ok    connection     db:5432
warn  clock          2 s ahead\\n
                     -> use NTP
      next ticks     Mon
                     Tue

a run would work; warnings: 1
"
        );
    }

    #[test]
    fn one_failure_decides() {
        let report = Report {
            findings: vec![Finding::fail("table", "none", "--init")],
            ticks: Vec::new(),
        };
        let text = render(&report, Paint::coloured(false));
        assert!(
            text.ends_with("\na run would fail; failures: 1\n"),
            "{text}"
        );
    }
}
