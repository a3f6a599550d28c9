use super::*;
use proptest::prelude::*;

fn timing(ttl: f64, interval: f64, kill_grace: f64) -> LeaseTiming {
    LeaseTiming {
        ttl: Duration::from_secs_f64(ttl),
        interval: Duration::from_secs_f64(interval),
        kill_grace: Duration::from_secs_f64(kill_grace),
    }
}

fn at(seconds: f64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs_f64(seconds))
}

#[test]
fn deadlines_follow_from_the_instant_before_the_send() {
    // (ttl, interval, grace) -> seconds after `sent`: stop_at, kill_at
    let table = [
        ((60.0, 10.0, 10.0), (50.0, 59.75)), // margin = grace
        ((6.0, 1.0, 10.0), (4.0, 5.75)),     // margin = TTL / 3
        ((6.0, 1.0, 1.0), (5.0, 5.75)),      // a short grace leaves more time to renew
        ((10.0, 8.0, 10.0), (9.0, 9.75)),    // margin = (TTL - interval) / 2
        ((3.0, 1.0, 0.4), (2.6, 2.9)),       // safety = margin / 4
        ((60.0, 10.0, 0.0), (60.0, 60.0)),   // no grace: killed at the expiry
        ((5.0, 5.0, 10.0), (5.0, 5.0)),      // interval = TTL: allowed, and nothing is left
    ];
    for ((ttl, interval, grace), (stop, kill)) in table {
        let sent = 1000.0;
        let term = LeaseTerm::begin(timing(ttl, interval, grace), at(sent));
        let expected = Deadlines {
            stop_at: at(sent + stop),
            kill_at: at(sent + kill),
        };
        let got = term.deadlines();
        let close =
            |a: BootInstant, b: BootInstant| a.left(b).max(b.left(a)) < Duration::from_micros(1);
        assert!(
            close(got.stop_at, expected.stop_at) && close(got.kill_at, expected.kill_at),
            "ttl {ttl}, interval {interval}, grace {grace}: {got:?}, expected {expected:?}"
        );
    }
}

#[test]
fn the_table_of_the_guarantees_is_what_the_rules_give() {
    let page = include_str!("../../../docs/GUARANTEES.md");
    let (_, table) = page.split_once("\n| TTL | interval |").unwrap();
    let rows: Vec<Vec<f64>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().parse().unwrap()).collect()
        })
        .collect();
    assert!(rows.len() > 4);
    for row in rows {
        let [ttl, interval, grace, stop, kill, outage] = row[..] else {
            panic!("{row:?}");
        };
        let timing = timing(ttl, interval, grace);
        let deadlines = LeaseTerm::begin(timing, at(0.0)).deadlines();
        assert_eq!(LeaseTiming::default_interval(timing.ttl), timing.interval);
        assert_eq!(deadlines.stop_at, at(stop), "{row:?}");
        assert_eq!(deadlines.kill_at, at(kill), "{row:?}");
        assert_eq!(
            at(stop),
            at(interval).after(Duration::from_secs_f64(outage))
        );
    }
}

#[test]
fn default_interval_is_a_third_within_bounds_and_at_most_half_the_ttl() {
    let table = [
        (60.0, 10.0),
        (20.0, 6.0),
        (3.0, 1.0),
        (1.5, 0.75),
        (0.1, 0.05),
        (1e6, 10.0),
    ];
    for (ttl, interval) in table {
        let got = LeaseTiming::default_interval(Duration::from_secs_f64(ttl));
        assert_eq!(got, Duration::from_secs_f64(interval), "ttl {ttl}");
    }
}

#[test]
fn renewal_extends_from_its_own_send_not_from_its_answer() {
    let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
    assert!(term.renewed(at(101.0), at(104.9)));
    assert_eq!(term.deadlines().stop_at, at(106.0));
    assert_eq!(term.renew_at(), at(102.0));
}

#[test]
fn a_renewal_is_due_before_the_stop_deadline_even_with_an_interval_as_long_as_the_ttl() {
    for (interval, due) in [(2.0, 1.8), (1.9, 1.75), (1.0, 1.0)] {
        let term = LeaseTerm::begin(timing(2.0, interval, 10.0), at(100.0));
        let got = term.renew_at().since_boot().as_secs_f64();
        assert!(
            (got - 100.0 - due).abs() < 1e-6,
            "interval {interval}: {got}"
        );
    }
}

#[test]
fn slow_success_after_the_stop_deadline_does_not_undo_the_loss() {
    let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
    assert!(!term.renewed(at(104.0), at(105.0)));
    assert_eq!(term.loss(at(105.0)), Some(Loss::Expired));
    assert_eq!(term.deadlines().stop_at, at(105.0));
}

#[test]
fn rejection_is_loss_at_once_and_gives_the_full_grace() {
    let mut term = LeaseTerm::begin(timing(6.0, 1.0, 10.0), at(100.0));
    term.rejected(at(101.5));
    assert_eq!(term.loss(at(101.5)), Some(Loss::Rejected));
    let deadlines = term.deadlines();
    assert_eq!(
        (deadlines.stop_at, deadlines.kill_at),
        (at(101.5), at(111.5))
    );
    assert!(
        !term.renewed(at(101.6), at(101.7)),
        "nothing brings it back"
    );
}

#[test]
fn rejection_after_the_stop_deadline_does_not_postpone_the_kill() {
    let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
    let before = term.deadlines();
    term.rejected(at(105.5));
    assert_eq!(term.deadlines(), before);
    assert_eq!(term.loss(at(105.5)), Some(Loss::Expired));
}

#[test]
fn answers_that_overtake_each_other_do_not_shorten_the_lease() {
    let mut term = LeaseTerm::begin(timing(60.0, 10.0, 10.0), at(100.0));
    assert!(term.renewed(at(120.0), at(121.0)));
    assert!(term.renewed(at(110.0), at(122.0)));
    assert_eq!(term.renew_at(), at(130.0));
}

#[test]
fn batch_gets_what_its_most_urgent_lease_would_get_but_never_next_to_nothing() {
    let table: [(&[f64], f64); 6] = [
        (&[], 10.0),
        (&[60.0, 24.0], 8.0),
        (&[60.0, 9.0], 5.0),
        (&[60.0, 3.0], 3.0),
        (&[60.0, 0.0], 0.5),
        (&[600.0], 10.0),
    ];
    for (lefts, limit) in table {
        let got = batch_limit(lefts.iter().map(|left| Duration::from_secs_f64(*left)));
        assert_eq!(got, Duration::from_secs_f64(limit), "{lefts:?}");
    }
}

proptest! {
    #[test]
    fn everything_is_over_before_the_row_can_be_taken(
        ttl in 0.001..1e6_f64,
        interval_share in 0.0..=1.0_f64,
        grace in 0.0..1e6_f64,
        steps in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, any::<bool>()), 0..20),
    ) {
        let timing = timing(ttl, (ttl * interval_share).max(1e-6).min(ttl), grace);
        let mut now = at(1000.0);
        let mut sent = now;
        let mut term = LeaseTerm::begin(timing, sent);
        for (pause, round_trip, answered) in steps {
            let before = term.loss(now);
            now = now.after(timing.ttl.mul_f64(pause));
            let this = now;
            now = now.after(timing.ttl.mul_f64(round_trip));
            if answered && term.renewed(this, now) {
                sent = this;
            }
            let Deadlines { stop_at, kill_at } = term.deadlines();
            prop_assert!(stop_at <= kill_at);
            // The row expires at the database no earlier than this.
            prop_assert!(kill_at <= sent.after(timing.ttl));
            prop_assert!(stop_at >= sent);
            prop_assert!(before.is_none() || term.loss(now) == before, "a loss is for good");
            prop_assert_eq!(term.loss(now).is_some(), now >= stop_at);
        }
    }

    #[test]
    fn no_time_is_too_long_or_too_short_to_compute_with(
        ttl in any::<Duration>(), interval in any::<Duration>(), grace in any::<Duration>(),
        sent in any::<Duration>(), now in any::<Duration>(),
    ) {
        let timing = LeaseTiming { ttl, interval, kill_grace: grace };
        let mut term = LeaseTerm::begin(timing, BootInstant::from_boot(sent));
        let now = BootInstant::from_boot(now);
        term.rejected(now);
        let _ = (term.deadlines(), term.renew_at(), term.loss(now), batch_limit([ttl].into_iter()));
        let _ = early_by(ttl);
        let _ = LeaseTiming::default_interval(ttl);
    }
}
