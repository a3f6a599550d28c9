//! Which processes are alive.
//!
//! A process that a test started can leave its process group and its parent, but it cannot change
//! the environment that it was started with; that is how all of them are found again.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The living processes that were started with `NAME=value` in their environment.
pub(crate) fn with_variable(name: &str, value: &str) -> Vec<Pid> {
    let entry = format!("{name}={value}").into_bytes();
    where_file("environ", |bytes| {
        bytes.split(|b| *b == 0).any(|e| e == entry)
    })
}

/// The living processes in whose arguments `text` stands.
pub(crate) fn mentioning(text: &str) -> Vec<Pid> {
    where_file("cmdline", |bytes| {
        String::from_utf8_lossy(bytes).contains(text)
    })
}

/// Whether `pid` can still do anything: one whose memory is gone, a zombie or nearly so, cannot.
pub(crate) fn is_alive(pid: Pid) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|arguments| !arguments.is_empty())
}

/// The state letter that `ps` shows, `T` for stopped; `None` when there is no such process.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let parent = pid.to_string();
    where_file("stat", |bytes| {
        let stat = String::from_utf8_lossy(bytes);
        // After the name, which may contain anything: state, parent.
        let fields = stat.rsplit(')').next().map(str::split_whitespace);
        fields.and_then(|mut fields| fields.nth(1)) == Some(&parent)
    })
}

/// The name that the process goes by in `ps`.
pub(crate) fn name(pid: Pid) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Sends `signal` to each of `pids`, those that are gone aside.
pub(crate) fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill(*pid, signal);
    }
}

fn where_file(name: &str, holds: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("these tests need /proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(|pid| fs::read(format!("/proc/{pid}/{name}")).is_ok_and(|bytes| holds(&bytes)))
        .filter(|pid| is_alive(*pid))
        .collect()
}
