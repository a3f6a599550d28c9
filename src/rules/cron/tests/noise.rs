//! A million texts that nobody meant to be a crontab expression, or nearly.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::{CronError, Crontab};
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

fn read_and_search(
    text: &str,
    after: Timestamp,
    zone: &TimeZone,
) -> (Duration, Result<Option<Timestamp>, CronError>) {
    let start = Instant::now();
    let tick = Crontab::parse(black_box(text)).map(|crontab| crontab.next_after(after, zone));
    (start.elapsed(), tick)
}

/// Feeds a share of the texts, and returns how many of them were expressions and what took longest.
fn feed(mut dice: Dice, texts: u64) -> (u64, Duration) {
    let zones = ["UTC", "Europe/Berlin", "Africa/Casablanca", "Pacific/Apia"].map(zone);
    let mut text = String::new();
    let mut read = 0;
    let mut longest = Duration::ZERO;
    for _ in 0..texts {
        dice.write(&mut text);
        let (after, zone) = (dice.instant(), &zones[dice.below(zones.len())]);
        let (mut took, result) = read_and_search(&text, after, zone);
        for _ in 0..20 {
            // It may have been the machine, which was busy with something else.
            if took <= LIMIT / 50 {
                break;
            }
            took = took.min(read_and_search(&text, after, zone).0);
        }
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
                let is_a_line = !message.contains(char::is_control) && message.len() < 400;
                assert!(is_a_line, "{text:?}: {message:?}");
            }
        }
    }
    (read, longest)
}

#[test]
fn a_million_random_texts_are_read_or_refused_and_searched_at_once() {
    let shares: Vec<_> = (1..=THREADS)
        .map(|n| {
            let dice = Dice(0x1234_5678_9ABC_DEF1 * n);
            thread::spawn(move || feed(dice, TEXTS / THREADS))
        })
        .collect();
    let shares: Vec<_> = shares
        .into_iter()
        .map(|share| share.join().unwrap())
        .collect();
    let read: u64 = shares.iter().map(|(read, _)| read).sum();
    println!(
        "{read} of {TEXTS} were expressions; {:?} at most",
        shares.iter().map(|(_, took)| took).max()
    );
    assert!(
        read > TEXTS / 20,
        "only {read} were expressions: too noisy to search much"
    );
    assert!(
        read < TEXTS * 19 / 20,
        "{read} were expressions: not noisy enough"
    );
}

#[test]
fn a_text_of_a_megabyte_is_read_or_refused_without_delay() {
    let long = [
        format!("{}0 * * * *", "0,".repeat(500_000)),
        format!("{}59 * * * *", "0".repeat(1_000_000)),
        format!("0 0 * * {}1#1", "1#1,".repeat(250_000)),
        format!("{}* * * * *{}", " ".repeat(500_000), "\t".repeat(500_000)),
        "9".repeat(1_000_000),
        "* ".repeat(500_000),
        "\u{301}".repeat(500_000),
        format!("@{}", "daily".repeat(200_000)),
    ];
    for text in long {
        let start = Instant::now();
        let result = Crontab::parse(&text);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(2), "{:.20}…: {took:?}", text);
        if let Err(e) = result {
            assert!(e.to_string().len() < 600, "{e}");
        }
    }
}
