//! A million texts that nobody meant to be a crontab expression, or nearly.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::Crontab;
use super::super::parse::CronError;
use super::zone;

const TEXTS: u64 = 1_000_000;
const THREADS: u64 = 2;
const LIMIT: Duration = Duration::from_millis(10);

/// What may stand in each field.
const FIELDS: [&[&str]; 5] = [
    &[
        "*",
        "*/2",
        "0",
        "59",
        "007",
        "50-10",
        "5/15",
        "0-59/7",
        "1,2,30-40",
        "*,3",
    ],
    &[
        "*", "*/5", "0", "23", "2", "22-4", "9-17/2", "0,12,2-3", "20/2",
    ],
    &[
        "*", "*", "*/2", "1", "29", "30", "31", "L", "1,15,l", "*,10", "28-3",
    ],
    &[
        "*",
        "*",
        "*/3",
        "2",
        "FEB",
        "4,6",
        "nov-feb",
        "jan-Dec/2",
        "12",
    ],
    &[
        "*",
        "*",
        "*/2",
        "0",
        "7",
        "fri-mon",
        "6-7",
        "1#5",
        "5#2,L5",
        "mon,wed",
        "sun-sat/3",
    ],
];

/// What may not, at least not everywhere.
const NOISE: [&str; 36] = [
    "",
    "60",
    "99",
    "4294967296",
    "-1",
    "+1",
    "*/0",
    "1/2/3",
    "jan",
    "mon",
    "friday",
    "1#6",
    "#",
    "5L",
    "L",
    "LW",
    "15W",
    "?",
    "H",
    "~",
    "@daily",
    "@reboot",
    "TZ=UTC",
    ",",
    ",,",
    "-",
    "/",
    "**",
    "'",
    "\u{2003}",
    "\n",
    "\t",
    "\0",
    "é🦀",
    "\u{301}",
    "\u{202e}",
];

/// The xorshift generator of Marsaglia: quick, and the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() >> 33).unwrap() % n
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    /// Any instant from the year 1600 to 2400.
    fn instant(&mut self) -> Timestamp {
        let seconds = i64::try_from(self.roll() % 25_000_000_000).unwrap();
        Timestamp::from_second(seconds - 11_600_000_000).unwrap()
    }

    fn write(&mut self, text: &mut String) {
        text.clear();
        match self.below(8) {
            0 => {
                for _ in 0..self.below(30) {
                    let c = u32::try_from(self.roll() >> 40).unwrap();
                    text.push(char::from_u32(c % 0x80).unwrap());
                    text.extend(char::from_u32(c % 0x11_0000).filter(|_| c % 3 == 0));
                }
            }
            1 => {
                for _ in 0..self.below(12) {
                    let field = self.below(5);
                    text.push_str(self.pick(FIELDS[field]));
                    text.push_str(self.pick(&["", " ", " ", "\t", ",", "  "]));
                    text.push_str(self.pick(&NOISE));
                }
            }
            _ => {
                for field in FIELDS {
                    text.push_str(self.pick(field));
                    text.push_str(self.pick(&[" ", " ", "\t", "  "]));
                }
                // Something is lost, or something else is there instead.
                for _ in 0..self.below(3) {
                    let at = self.below(text.len());
                    let noise = self.pick(&NOISE);
                    if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                        text.replace_range(at..=at, noise);
                    }
                }
            }
        }
    }
}

/// The first tick, and how long it took to read the text and to find it.
fn timed(
    text: &str,
    after: Timestamp,
    zone: &TimeZone,
) -> (Result<Option<Timestamp>, CronError>, Duration) {
    let once = || {
        let start = Instant::now();
        let tick = Crontab::parse(black_box(text)).map(|crontab| crontab.next_after(after, zone));
        (tick, start.elapsed())
    };
    let (tick, mut took) = once();
    for _ in 0..20 {
        // The machine may be busy with something else for a while, but not each time.
        if took > LIMIT / 10 {
            took = took.min(once().1);
        }
    }
    (tick, took)
}

/// Feeds a share of the texts, and returns how many were expressions and what took longest.
fn feed(mut dice: Dice, texts: u64) -> (u64, Duration) {
    let zones = ["UTC", "Europe/Berlin", "Africa/Casablanca", "Pacific/Apia"].map(zone);
    let mut text = String::new();
    let mut read = 0;
    let mut longest = Duration::ZERO;
    for _ in 0..texts {
        dice.write(&mut text);
        let (after, zone) = (dice.instant(), &zones[dice.below(zones.len())]);
        let (result, took) = timed(&text, after, zone);
        assert!(
            took <= LIMIT,
            "{text:?} after {after} in {zone:?}: {took:?}"
        );
        longest = longest.max(took);
        match result {
            Ok(tick) => {
                assert!(
                    tick.is_some_and(|tick| tick > after),
                    "{text:?} after {after}"
                );
                read += 1;
            }
            Err(e) => {
                let message = e.to_string();
                let is_a_line = !message.bytes().any(|b| b.is_ascii_control());
                assert!(is_a_line && message.len() < 600, "{text:?}: {message:?}");
            }
        }
    }
    (read, longest)
}

#[test]
fn a_million_random_texts_are_read_or_refused_and_searched_at_once() {
    let threads: Vec<_> = (1..=THREADS)
        .map(|n| {
            let dice = Dice(0x1234_5678_9ABC_DEF1 * n);
            thread::spawn(move || feed(dice, TEXTS / THREADS))
        })
        .collect();
    let mut read = 0;
    let mut longest = Duration::ZERO;
    for thread in threads {
        let (n, took) = thread.join().unwrap();
        read += n;
        longest = longest.max(took);
    }
    println!("{read} of {TEXTS} were expressions; {longest:?} at most");
    assert!(read > TEXTS / 20, "only {read} were expressions: too noisy");
    assert!(
        read < TEXTS * 19 / 20,
        "{read} were expressions: not noisy enough"
    );
}

#[test]
fn the_rarest_job_is_found_at_once_where_clocks_change_most() {
    // There is no Monday 29 February for 40 years.
    let after = "2072-03-02T00:00:00Z".parse().unwrap();
    for tz in [
        "UTC",
        "Europe/Berlin",
        "Africa/Casablanca",
        "America/Santiago",
    ] {
        for text in ["59 23 * 2 1#5", "*/59 23 * feb mon#5"] {
            let (tick, took) = timed(text, after, &zone(tz));
            println!("{text} in {tz}: {took:?}");
            assert!(tick.unwrap().unwrap().to_string().starts_with("2112"));
            assert!(took <= LIMIT, "{text} in {tz}: {took:?}");
        }
    }
}
