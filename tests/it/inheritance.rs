//! What the command gets from whoever started dislock: all of it, unchanged.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use crate::support::database::Database;
use crate::support::run::Run;

/// Runs a shell script that ends by running `"$@"`, once with dislock around `sh -c command`, once
/// without; what each of them has written.
fn with_and_without(prepare: &str, command: &str) -> [String; 2] {
    let database = Database::new();
    let dislock = env!("CARGO_BIN_EXE_dislock");
    let outer = [Some(dislock), None].map(|dislock| {
        let mut outer = Command::new("sh");
        outer.args(["-c", prepare, "sh"]).args(dislock);
        outer.args(dislock.map(|_| "DATABASE_URL"));
        outer.args(["sh", "-c", command]);
        outer
            .env("DATABASE_URL", database.url())
            .env("LOCK_KEY", "job");
        outer
            .env("LOCK_STRATEGY", "lease")
            .env("CRONJOB_LOCK_LOG_LEVEL", "warning");
        let finished = Run::start(outer).finish();
        assert_eq!((finished.code, &*finished.stderr), (0, ""));
        finished.stdout
    });
    assert!(!outer[0].is_empty());
    outer
}

#[test]
fn signal_mask_and_ignored_signals() {
    for prepare in [
        "exec \"$@\"",
        "nohup \"$@\"",
        "trap '' INT QUIT USR1 WINCH TSTP PIPE; trap - PIPE; exec \"$@\"",
        "trap '' TERM HUP; exec \"$@\"",
        "env --block-signal=USR1,TERM,RTMIN \"$@\"",
    ] {
        let command = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let [with, without] = with_and_without(prepare, command);
        assert_eq!(with, without, "{prepare}");
    }
}

#[test]
fn descriptors_from_3_on() {
    let prepare = "exec 4< /etc/passwd 9> /dev/null; exec \"$@\"";
    let [with, without] = with_and_without(prepare, "ls /proc/self/fd; head -n 1 <&4");
    assert_eq!(with, without);
}

#[test]
fn limits_directory_niceness_and_mask_of_files() {
    let prepare = "cd /usr; ulimit -n 200; umask 027; nice -n 2 \"$@\"";
    let [with, without] = with_and_without(prepare, "pwd; ulimit -n; umask; nice");
    assert_eq!(with, without);
    assert!(with.starts_with("/usr\n200\n0027\n"), "{with}");
}

#[test]
fn the_environment_but_for_what_dislock_adds() {
    let command = "env -0 | tr '\\n\\0' ' \\n' | grep -v '^DISLOCK_\\|^IT_' | sort";
    let [with, without] = with_and_without("exec \"$@\"", command);
    assert_eq!(with, without);
}

#[test]
fn bytes_that_are_not_utf_8() {
    let database = Database::new();
    let odd = OsString::from_vec(b"\xff\xfe \n\x01".to_vec());
    let script = OsStr::new("printf '%s|%s' \"$1\" \"$ODD\" | od -An -tx1");
    let run = crate::support::run::Dislock::lease(database.url(), 60.0)
        .env("ODD", &odd)
        .run([
            OsStr::new("sh"),
            OsStr::new("-c"),
            script,
            OsStr::new("sh"),
            &odd,
        ]);
    let dump: String = run.stdout.split_whitespace().collect();
    assert_eq!(dump, "fffe200a017cfffe200a01");
    assert_eq!(odd.as_bytes().len(), 5);
}

#[test]
fn standard_input() {
    let [with, without] = with_and_without("echo text | \"$@\"", "cat");
    assert_eq!(with, without);
    assert_eq!(with, "text\n");
}

#[test]
fn a_broken_pipe_ends_the_command_by_sigpipe() {
    let prepare = "{ \"$@\"; echo \"code $?\" > /dev/stdout; } | cat";
    let [with, without] = with_and_without(prepare, "(kill -PIPE $$); echo $?");
    assert_eq!(with, without);
}
