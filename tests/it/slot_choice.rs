//! The database picks the slot by its own clock, among the ticks around ours: always the one that is
//! computed from that clock where they do not fit.
//!
//! The server's clock is set by a function `now()` that is found before the server's own.

use std::time::{Duration, SystemTime};

use dislock::{LockContext, LockContextBuilder, ScheduleLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::server::Server;

const MINUTE: i64 = 60_000_000;

struct Setup {
    proxy: Proxy,
    database: Database,
    _server: Server,
}

impl Setup {
    /// With sessions in this time zone.
    fn new(zone: &str) -> Self {
        let server = Server::start();
        let database = server.database();
        database.sql(&format!(
            "CREATE SCHEMA set; CREATE TABLE set.clock AS SELECT pg_catalog.now() AS now; \
             CREATE FUNCTION set.now() RETURNS timestamptz STABLE LANGUAGE sql \
             AS 'SELECT now FROM set.clock'; \
             ALTER DATABASE {name} SET search_path = set, pg_catalog, public; \
             ALTER DATABASE {name} SET timezone = '{zone}'",
            name = database.name()
        ));
        Self {
            proxy: database.proxy(),
            database,
            _server: server,
        }
    }

    /// Sets the server's clock, in microseconds since 1970.
    fn set_clock(&self, micros: i64) {
        self.database.sql(&format!(
            "UPDATE set.clock SET now = '1970-01-01Z'::timestamptz + {micros} * interval '1 us'"
        ));
    }

    /// Takes a slot that nobody has; answers its end, and how many statements that took.
    fn take(&self, schedule: &str, zone: Option<&str>, tolerance: Duration) -> (SystemTime, usize) {
        let mut ctx = self.context().schedule(schedule).slot_tolerance(tolerance);
        if let Some(zone) = zone {
            ctx = ctx.timezone(zone);
        }
        self.take_as(ctx)
    }

    /// With a key that nobody has used.
    fn context(&self) -> LockContextBuilder {
        let url = self.database.url_via(&self.proxy) + "?sslmode=disable";
        LockContext::builder(url, format!("{:x}", rand::random::<u64>()))
    }

    fn take_as(&self, ctx: LockContextBuilder) -> (SystemTime, usize) {
        // A connection costs one, too, and may be one that is there.
        let statements = || self.proxy.round_trips() - self.proxy.connections();
        let before = statements();
        let slot = ScheduleLock::acquire(&ctx.build().unwrap()).unwrap();
        (slot.until().unwrap(), statements() - before)
    }
}

fn our_micros() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_micros().try_into().unwrap()
}

#[test]
fn the_slot_is_the_same_whether_picked_or_computed_from_the_databases_clock() {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let near = our_micros() / MINUTE % 60;
    let around_now = format!("{},{},{} * * * *", (near + 59) % 60, near, (near + 2) % 60);
    let schedules = [
        "* * * * *",
        "*/5 * * * *",
        "@hourly",
        "30 2 * * *",
        &around_now,
    ];
    for zone in [
        "Europe/Berlin",
        "Asia/Kathmandu",
        "America/St_Johns",
        "Etc/GMT",
    ] {
        let setup = Setup::new(zone);
        for _ in 0..40 {
            let schedule = schedules[random.random_range(0..schedules.len())];
            let tolerance = Duration::from_millis(random.random_range(0..5) * 500);
            let mut apart = random.random_range(-20 * 1_000_000..20 * 1_000_000);
            let mut at = our_micros() + apart;
            if random.random() {
                // At a tick or a microsecond beside it, for most of the schedules.
                let tolerance: i64 = tolerance.as_micros().try_into().unwrap();
                at = (at / MINUTE * MINUTE) - tolerance + random.random_range(-1..=1);
                apart = at - our_micros();
            }
            setup.set_clock(at);

            let (picked, statements) = setup.take(schedule, Some(zone), tolerance);
            let (computed, more) = setup.take(schedule, None, tolerance);

            let case =
                format!("{schedule} in {zone} at {at}, {apart} apart, {tolerance:?}, {seed}");
            assert_eq!(picked, computed, "{case}");
            assert_eq!(more, 2, "{case}");
            match apart {
                ..-10_000_000 => assert_eq!(statements, 2, "{case}"),
                // Our clock goes on until the statement is sent, and theirs stands still.
                -1_000_000..4_000_000 => assert_eq!(statements, 1, "{case}"),
                // Behind the last of our ticks, or not.
                _ => {}
            }
        }
    }
}

#[test]
fn a_session_in_utc_needs_no_zone_to_be_set() {
    for zone in ["UTC", "Etc/UTC", "GMT"] {
        let setup = Setup::new(zone);
        setup.set_clock(our_micros());
        assert_eq!(setup.take("@yearly", None, Duration::ZERO).1, 1, "{zone}");
    }
}

#[test]
fn the_time_of_the_next_run_needs_no_zone() {
    let setup = Setup::new("Europe/Berlin");
    setup.set_clock(our_micros());
    let next_run = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    let ctx = setup.context().next_run_time(next_run);
    assert_eq!(setup.take_as(ctx), (next_run, 1));
}
