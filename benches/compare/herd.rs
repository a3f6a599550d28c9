//! Many hosts fire one tick at a server that has fewer connections than there are hosts.

use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::cost::{DISLOCK, children_cpu, python};
use crate::report::Group;
use crate::support::database::Session;
use crate::support::server::Server;

const CONTENDERS: usize = 500;
const ROUNDS: usize = 3;
/// Connections that others have, in the second case.
const TAKEN: usize = 90;

pub(crate) fn one_tick() {
    let mut group = Group::new("herd");
    let server = Server::with_settings("max_connections = 100");
    let database = server.database();
    let python = python();
    if let Err(why) = &python {
        group.skip("Python original", why);
    }
    for round in 0..ROUNDS {
        contend(&mut group, &server, "dislock", DISLOCK);
        let others: Vec<Session> = (0..TAKEN).map(|_| database.session()).collect();
        let subject = format!("dislock, {TAKEN} connections taken");
        contend(&mut group, &server, &subject, DISLOCK);
        drop(others);
        // Once: it takes minutes.
        if let (Ok(python), 0) = (&python, round) {
            contend(&mut group, &server, "Python original", python);
        }
    }
}

fn contend(group: &mut Group, server: &Server, subject: &str, program: &str) {
    let database = server.database();
    let cpu = children_cpu();
    let refused = refusals(server);
    // A shell holds each of them until the others are there, too.
    let (held, release) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let children: Vec<Child> = (0..CONTENDERS)
        .map(|_| {
            Command::new("sh")
                .args(["-c", "read -r _; exec \"$@\"", "sh"])
                .args([program, "DATABASE_URL", "echo", "started"])
                .env("DATABASE_URL", database.url())
                .env("LOCK_KEY", "herd")
                .env("LOCK_STRATEGY", "schedule")
                .env("CRON_SCHEDULE", "0 0 1 1 *")
                .stdin(held.try_clone().unwrap())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let started = Instant::now();
    drop(release);
    let outputs: Vec<_> = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    let count = |which: fn(&Output) -> bool| outputs.iter().filter(|o| which(o)).count();
    let starts = count(|output| !output.stdout.is_empty());
    let failures = count(|output| !output.status.success());
    if program == DISLOCK {
        assert_eq!((starts, failures), (1, 0), "that is no figure, but a bug");
    }
    let refused = refusals(server) - refused;
    group.add(subject, "contenders", CONTENDERS as f64);
    group.add(subject, "starts", starts as f64);
    group.add(subject, "failures", failures as f64);
    group.add(subject, "connections refused", refused as f64);
    let cpu = (children_cpu() - cpu) * 1e3 / CONTENDERS as f64;
    group.add(subject, "CPU ms per contender", cpu);
    group.add(subject, "wall s", started.elapsed().as_secs_f64());
}

/// How many connections the server has refused so far.
fn refusals(server: &Server) -> usize {
    let log = server.log();
    let full = ["too many clients already", "remaining connection slots"];
    let lines = log.lines();
    lines
        .filter(|line| full.iter().any(|text| line.contains(text)))
        .count()
}
