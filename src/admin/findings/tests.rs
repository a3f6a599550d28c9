//! What the tests from outside cannot bring about: other clocks, other servers.

use super::*;

fn verdict_and_text(finding: &Finding) -> (Verdict, &str) {
    (finding.verdict, &finding.text)
}

#[test]
fn clocks_matter_to_a_schedule_beyond_its_tolerance() {
    let second = Some(Duration::from_secs(1));
    let cases = [
        (0, second, Verdict::Ok, "agree"),
        (49, second, Verdict::Ok, "agree"),
        (-900, second, Verdict::Ok, "0.90 s behind"),
        (1_000, second, Verdict::Ok, "1.00 s ahead"),
        (1_001, second, Verdict::Warn, "slot tolerance of 1s"),
        (-3_600_000, second, Verdict::Warn, "3600.00 s behind"),
        (
            3_600_000,
            None,
            Verdict::Ok,
            "a lease does not depend on it",
        ),
        (
            500,
            Some(Duration::ZERO),
            Verdict::Warn,
            "slot tolerance of 0ns",
        ),
    ];
    for (millis, tolerance, verdict, text) in cases {
        let found = clocks(SignedDuration::from_millis(millis), tolerance);
        assert_eq!(found.verdict, verdict, "{millis}: {found:?}");
        assert!(found.text.contains(text), "{millis}: {found:?}");
    }
}

fn session_facts() -> SessionFacts {
    SessionFacts {
        version: "15.1".to_owned(),
        database: "app".to_owned(),
        user: "app".to_owned(),
        in_recovery: false,
        read_only: false,
        isolation: "read committed".to_owned(),
        backend: 41,
    }
}

#[test]
fn a_session_that_cannot_write_fails() {
    let verdicts = |facts: &SessionFacts| session(facts).iter().map(|f| f.verdict).max();

    let good = session_facts();
    assert_eq!(verdicts(&good), Some(Verdict::Ok));
    let read_only = SessionFacts {
        read_only: true,
        ..good
    };
    assert_eq!(verdicts(&read_only), Some(Verdict::Fail));
}

fn schedule_of(text: &str, given: bool, here: &TimeZone, tolerance: u64) -> (Finding, Vec<String>) {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    schedule_in(&berlin, text, given, here, tolerance)
}

fn schedule_in(
    zone: &TimeZone,
    text: &str,
    given: bool,
    here: &TimeZone,
    tolerance: u64,
) -> (Finding, Vec<String>) {
    let (findings, ticks) = schedule(
        &Crontab::parse(text).unwrap(),
        zone,
        given,
        here,
        "2026-10-24T12:00:00Z".parse().unwrap(),
        Duration::from_secs(tolerance),
    );
    (findings[0].clone(), ticks)
}

#[test]
fn ticks_show_the_offset_that_is_in_force_then() {
    let (found, ticks) = schedule_of("30 3 * * *", true, &TimeZone::UTC, 1);

    assert_eq!(
        verdict_and_text(&found),
        (Verdict::Ok, "read in Europe/Berlin")
    );
    assert_eq!(
        ticks[..2],
        [
            "Sun 2026-10-25 03:30:00 +01:00",
            "Mon 2026-10-26 03:30:00 +01:00"
        ]
    );
    assert_eq!(ticks.len(), 5);
}

#[test]
fn another_zone_is_doubtful_only_where_ticks_differ_and_nobody_chose_it() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let cases = [
        ("30 3 * * *", false, TimeZone::UTC, Verdict::Warn),
        ("30 3 * * *", true, TimeZone::UTC, Verdict::Ok),
        ("30 3 * * *", false, berlin, Verdict::Ok),
        ("*/5 * * * *", false, TimeZone::UTC, Verdict::Ok),
    ];
    for (text, given, here, verdict) in cases {
        let (found, _) = schedule_of(text, given, &here, 1);
        assert_eq!(found.verdict, verdict, "{text}: {found:?}");
    }
}

#[test]
fn a_zone_of_which_only_the_offset_is_known_is_doubtful() {
    let hourly = |zone: &TimeZone| schedule_in(zone, "@hourly", false, &TimeZone::UTC, 1).0;
    let guessed = hourly(&TimeZone::fixed(jiff::tz::offset(1)));
    let rule = hourly(&TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());

    assert_eq!(guessed.verdict, Verdict::Warn);
    assert!(guessed.text.contains("UTC+01"), "{guessed:?}");
    assert_eq!(
        verdict_and_text(&rule),
        (Verdict::Ok, "read in a zone given by its rule")
    );
}

#[test]
fn a_tolerance_that_reaches_from_tick_to_tick_is_doubtful() {
    let (near, _) = schedule_of("* * * * *", true, &TimeZone::UTC, 30);
    let (far, _) = schedule_of("* * * * *", true, &TimeZone::UTC, 29);

    assert_eq!((near.verdict, far.verdict), (Verdict::Warn, Verdict::Ok));
    assert!(near.text.contains("60s apart"), "{near:?}");
}
