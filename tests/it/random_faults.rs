//! One random fault after the other, and never two workers at once.
//!
//! Each round starts a holder whose worker records when it is alive, breaks something at a random
//! moment, and lets contenders try until one of them works or the holder has plainly kept its lease.
//! Several lanes, each with a server of its own, go on side by side.
//!
//! `DISLOCK_RANDOM_FAULTS=200 cargo test random_faults -- --nocapture` makes a long run of it; a seed is
//! printed, with which `DISLOCK_FAULT_SEED` repeats the choice of faults (not their timing).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::support::database::Database;
use crate::support::processes;
use crate::support::proxy::Proxy;
use crate::support::run::{Dislock, Run, overlap};
use crate::support::server::{Frozen, Server, Stop};
use crate::support::wait::eventually;

const TTL: f64 = 2.0;
const INTERVAL: &str = "0.4";
const GRACE: &str = "0.4";
/// By when a lease that will be lost is lost, and somebody else has started, on a busy machine too.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// A holder that is still at work so long after the fault keeps its lease.
const SURVIVED: Duration = Duration::from_millis(2600);
const LANES: usize = 3;
const DEFAULT_FAULTS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NetworkSilent,
    NetworkReset,
    SupervisorKilled,
    SupervisorStopped,
    GuardianKilled,
    GuardianStopped,
    GuardianStoppedAndNetworkSilent,
    SupervisorStoppedAndNetworkReset,
    BackendsFrozen,
    BackendsTerminated,
    RowLocked,
    ServerRestarted,
    ServerCrashed,
}

const FAULTS: [Fault; 13] = [
    Fault::NetworkSilent,
    Fault::NetworkReset,
    Fault::SupervisorKilled,
    Fault::SupervisorStopped,
    Fault::GuardianKilled,
    Fault::GuardianStopped,
    Fault::GuardianStoppedAndNetworkSilent,
    Fault::SupervisorStoppedAndNetworkReset,
    Fault::BackendsFrozen,
    Fault::BackendsTerminated,
    Fault::RowLocked,
    Fault::ServerRestarted,
    Fault::ServerCrashed,
];

/// What the command looks like; `"$@"` is the worker.
const SHAPES: [&str; 6] = [
    r#"exec "$@""#,
    r#""$@" & wait"#,
    r#"trap '' TERM INT HUP; "$@""#,
    r#"setsid "$@" & wait"#,
    r#"( ( setsid "$@" & ) & ); sleep 60"#,
    r#""$@" | cat"#,
];

#[test]
fn random_faults_never_let_two_workers_overlap() {
    let faults =
        number("DISLOCK_RANDOM_FAULTS").map_or(DEFAULT_FAULTS, |n| usize::try_from(n).unwrap());
    let seed = number("DISLOCK_FAULT_SEED").unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    // Each kind in its turn, in a random order, so that a short run leaves none out for long.
    let mut rounds = Vec::new();
    while rounds.len() < faults {
        let mut kinds = FAULTS;
        kinds.shuffle(&mut random);
        rounds.extend(kinds);
    }
    rounds.truncate(faults);

    let next = AtomicUsize::new(0);
    let (kept, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let overlaps = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for lane in 0..LANES {
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(lane as u64));
            let (rounds, next, kept, lost, overlaps) = (&rounds, &next, &kept, &lost, &overlaps);
            scope.spawn(move || {
                let server = Server::start();
                while let Some(fault) = rounds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let shape = SHAPES[random.random_range(0..SHAPES.len())];
                    let delay = Duration::from_millis(random.random_range(0..600));
                    let round = round(&server, *fault, shape, delay);
                    let counter = if round.passed_on { lost } else { kept };
                    counter.fetch_add(1, Ordering::Relaxed);
                    if let Some(length) = round.overlap {
                        let what = format!("{fault:?} of `{shape}` after {delay:?}: {length:?}");
                        overlaps.lock().unwrap().push(what);
                    }
                }
            });
        }
    });

    let overlaps = overlaps.into_inner().unwrap();
    println!(
        "{faults} random faults (seed {seed}): {} overlaps, {} leases kept, {} passed on",
        overlaps.len(),
        kept.into_inner(),
        lost.into_inner()
    );
    assert!(overlaps.is_empty(), "seed {seed}: {overlaps:#?}");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

struct Round {
    overlap: Option<Duration>,
    /// Somebody else got to work.
    passed_on: bool,
}

fn round(server: &Server, fault: Fault, shape: &str, delay: Duration) -> Round {
    let database = server.database();
    let proxy = database.proxy();
    let url = format!("{}?application_name=holder", database.url_via(&proxy));
    let mut holder = Dislock::lease(url, TTL)
        .env("LOCK_LEASE_INTERVAL", INTERVAL)
        .env("LOCK_KILL_GRACE_SECONDS", GRACE)
        .work_under_shell(shape, Duration::from_secs(60));
    holder.wait_for_worker();
    // The moment of the fault is what the seed cannot repeat: any moment of a renewal will do.
    thread::sleep(delay);

    let mut damage = Some(Damage::done(fault, server, &database, &proxy, &holder));
    if fault == Fault::RowLocked {
        // It keeps contenders out as well, so it has to go once it has cost the holder its lease.
        holder.exit_code();
        damage = None;
    }
    let contender = Dislock::lease(database.url(), TTL);
    let mut successor = take_over(&contender, &mut holder, fault);
    drop(damage);

    if let Some(successor) = &mut successor {
        // An overlap is easier to see when it is longer.
        eventually("the successor has worked for a moment", || {
            let ended = successor.try_exit_code().is_some();
            let work = &successor.spans()[0];
            ended || work.end - work.start >= Duration::from_millis(300)
        });
    }
    let runs: Vec<&Run> = std::iter::once(&holder).chain(&successor).collect();
    Round {
        overlap: overlap(runs),
        passed_on: successor.is_some(),
    }
}

/// The first contender that gets to work; `None` when the holder keeps its lease.
fn take_over(contender: &Dislock, holder: &mut Run, fault: Fault) -> Option<Run> {
    let begin = Instant::now();
    loop {
        let mut run = contender.work(Duration::from_secs(60));
        if run.gets_to_work() {
            return Some(run);
        }
        let held = holder.try_exit_code().is_none() && is_working(holder);
        if held && begin.elapsed() > SURVIVED {
            return None;
        }
        let stderr = run.stderr();
        assert!(
            begin.elapsed() < TAKE_OVER,
            "{fault:?}: nobody holds the lease, and nobody gets it: {stderr}"
        );
    }
}

fn is_working(run: &Run) -> bool {
    let now = crate::support::worker::now();
    run.spans()
        .last()
        .is_some_and(|span| now.saturating_sub(span.end) < Duration::from_millis(500))
}

/// What is broken, and repaired when this is dropped.
struct Damage<'a> {
    proxy: &'a Proxy,
    stopped: Vec<Pid>,
    _frozen: Option<Frozen>,
    _row_lock: Option<crate::support::database::Session>,
}

impl<'a> Damage<'a> {
    fn done(
        fault: Fault,
        server: &Server,
        database: &Database,
        proxy: &'a Proxy,
        holder: &Run,
    ) -> Self {
        let mut damage = Self {
            proxy,
            stopped: Vec::new(),
            _frozen: None,
            _row_lock: None,
        };
        let guardian = || guardian(holder.pid());
        match fault {
            Fault::NetworkSilent => proxy.silence(),
            Fault::NetworkReset => proxy.go_away(),
            Fault::SupervisorKilled => holder.signal(Signal::SIGKILL),
            Fault::SupervisorStopped => damage.stop(holder.pid()),
            Fault::GuardianKilled => processes::signal_all(&[guardian()], Signal::SIGKILL),
            Fault::GuardianStopped => damage.stop(guardian()),
            Fault::GuardianStoppedAndNetworkSilent => {
                damage.stop(guardian());
                proxy.silence();
            }
            Fault::SupervisorStoppedAndNetworkReset => {
                damage.stop(holder.pid());
                proxy.go_away();
            }
            Fault::BackendsFrozen => damage._frozen = Some(server.freeze("holder")),
            Fault::BackendsTerminated => server.terminate("holder"),
            Fault::RowLocked => {
                let mut session = database.session();
                session.sql("BEGIN");
                session.sql("SELECT 1 FROM key_value WHERE key LIKE '%lease:job' FOR UPDATE");
                damage._row_lock = Some(session);
            }
            Fault::ServerRestarted => server.restart(Stop::Fast),
            Fault::ServerCrashed => server.restart(Stop::Immediate),
        }
        damage
    }

    fn stop(&mut self, pid: Pid) {
        processes::signal_all(&[pid], Signal::SIGSTOP);
        self.stopped.push(pid);
    }
}

impl Drop for Damage<'_> {
    fn drop(&mut self) {
        self.proxy.heal();
        processes::signal_all(&self.stopped, Signal::SIGCONT);
    }
}

/// The guardian of a run: the child of dislock that carries this name.
fn guardian(dislock: Pid) -> Pid {
    processes::children(dislock)
        .into_iter()
        .find(|pid| processes::name(*pid).as_deref() == Some("lock-guardian"))
        .expect("a guardian")
}
