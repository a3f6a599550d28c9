//! `scripts/with-postgres`: a server for one command, and nothing left of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::run::Run;
use crate::support::wait::{SOON, eventually, value};
use crate::support::{home, processes};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/with-postgres");

/// A TMPDIR of the script's own, with a blank in its name.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let dir = home::new_dir("with postgres");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
        Self(dir)
    }

    fn script(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SCRIPT);
        command.args(words).env("TMPDIR", &self.0).current_dir("/");
        command
    }

    fn start(&self, words: &[&str]) -> Run {
        Run::start(self.script(words))
    }

    fn servers(&self) -> Vec<Pid> {
        processes::mentioning(self.0.to_str().unwrap())
    }

    #[track_caller]
    fn assert_clean(&self) {
        let files: Vec<_> = std::fs::read_dir(&self.0).unwrap().collect();
        assert!(files.is_empty(), "{files:?}");
        // It removes its last file a moment before it ends.
        eventually("no server is left", || self.servers().is_empty());
    }
}

/// Waits for what the command writes once it runs.
#[track_caller]
fn wait_for_output(run: &mut Run, text: &str) {
    value(text, SOON, || {
        assert_eq!(run.try_exit_code(), None, "{}", run.stderr());
        run.stdout().contains(text).then_some(())
    });
}

#[test]
fn the_command_finds_the_table_behind_both_variables() {
    let place = Place::new();

    let mut run = place.start(&[
        "sh",
        "-c",
        r#"echo "$DATABASE_URL $TEST_DATABASE_URL $$"; sleep 60"#,
    ]);
    wait_for_output(&mut run, "postgresql://");

    let output = run.stdout();
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(words[0], words[1]);
    let address = crate::support::database::Address::from_url(words[0]);
    assert_eq!(address.host, "127.0.0.1");
    assert_eq!(address.sql("SELECT * FROM key_value"), Vec::<Vec<_>>::new());
    run.signal(Signal::SIGTERM);
    assert_eq!(run.exit_code(), 143);
    place.assert_clean();
}

#[test]
fn the_command_finds_the_programs_of_the_server_that_runs() {
    let place = Place::new();
    let program = r#""$TEST_POSTGRES_BINDIR/postgres" --version | grep -o '[0-9]*' | head -n 1"#;
    let server = r#"psql -XAtc 'SHOW server_version_num' "$DATABASE_URL" | sed 's/....$//'"#;

    let finished = place
        .start(&["sh", "-c", &format!("{program}; {server}")])
        .finish();

    let majors: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(majors.len(), 2, "{finished:?}");
    assert_eq!(majors[0], majors[1]);
}

#[test]
fn a_major_version_that_cannot_be_had_is_an_error() {
    let place = Place::new();
    let mut command = place.script(&["echo", "never"]);
    command.env("PG_MAJOR", "9");

    let finished = Run::start(command).finish();

    assert_eq!((finished.code, &*finished.stdout), (1, ""));
    let expected = "PostgreSQL 9 is not installed";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    place.assert_clean();
}

#[test]
fn input_and_output_are_the_commands_alone() {
    let place = Place::new();
    let input = home::new_dir("input").join("input");
    std::fs::write(&input, "from stdin\n").unwrap();
    let mut command = place.script(&["sh", "-c", "cat; echo problem >&2"]);
    command.stdin(std::fs::File::open(input).unwrap());

    let finished = Run::start(command).finish();

    assert_eq!(finished.stdout, "from stdin\n");
    assert_eq!(finished.stderr, "problem\n");
}

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();

    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 139)] {
        let finished = place.start(&["sh", "-c", script]).finish();

        assert_eq!((finished.code, &*finished.stderr), (code, ""), "{script}");
        place.assert_clean();
    }
}

#[test]
fn a_command_that_cannot_run_has_the_shells_exit_codes() {
    let place = Place::new();

    for (command, code) in [("no-such-command", 127), ("/dev/null", 126)] {
        let finished = place.start(&[command]).finish();

        assert_eq!(finished.code, code);
        assert!(finished.stderr.contains(command), "{}", finished.stderr);
        place.assert_clean();
    }
}

#[test]
fn without_a_command_there_is_a_usage_line() {
    let finished = Place::new().start(&[]).finish();

    assert_eq!(finished.code, 2);
    assert!(
        finished.stderr.starts_with("usage: "),
        "{}",
        finished.stderr
    );
}

#[test]
fn ctrl_c_ends_the_command_and_the_server() {
    let place = Place::new();
    let mut run = place.start(&["sh", "-c", "echo ready; sleep 60; echo never"]);
    wait_for_output(&mut run, "ready");

    run.signal_group(Signal::SIGINT);

    assert_eq!(run.exit_code(), 130);
    assert_eq!(run.stdout(), "ready\n");
    place.assert_clean();
    assert_eq!(run.processes(), []);
}

#[test]
fn a_signal_to_the_script_ends_all_that_the_command_started() {
    let place = Place::new();
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let mut run = place.start(&["sh", "-c", "sh -c 'echo ready; sleep 60'; echo never"]);
        wait_for_output(&mut run, "ready");

        run.signal(signal);

        assert_eq!(run.exit_code(), code, "{signal}");
        place.assert_clean();
        assert_eq!(run.processes(), [], "{signal}");
    }
}

#[test]
fn a_command_that_handles_the_signal_decides_the_exit_code() {
    let place = Place::new();
    let mut run = place.start(&[
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done",
    ]);
    wait_for_output(&mut run, "ready");

    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 9);
    place.assert_clean();
}

#[test]
fn a_signal_while_the_server_starts_leaves_nothing() {
    let place = Place::new();
    for milestone in ["log", "data", "data/postmaster.pid"] {
        let mut run = place.start(&["sleep", "60"]);
        eventually(milestone, || {
            std::fs::read_dir(&place.0)
                .unwrap()
                .any(|entry| entry.is_ok_and(|e| e.path().join(milestone).exists()))
        });

        run.signal(Signal::SIGTERM);

        assert_eq!(run.exit_code(), 143, "{milestone}");
        place.assert_clean();
    }
}

#[test]
fn a_killed_script_leaves_no_server() {
    let place = Place::new();
    let mut run = place.start(&["sh", "-c", "echo ready; sleep 60"]);
    wait_for_output(&mut run, "ready");
    assert!(!place.servers().is_empty());

    run.signal_group(Signal::SIGKILL);

    assert_eq!(run.exit_code(), 137);
    eventually("the server is gone", || place.servers().is_empty());
    eventually("its directory is gone", || {
        std::fs::read_dir(&place.0).unwrap().next().is_none()
    });
}

#[test]
fn many_at_once_have_a_server_each() {
    let place = Place::new();

    let mut runs: Vec<Run> = (0..6)
        .map(|_| {
            place.start(&[
                "sh",
                "-c",
                "echo $DATABASE_URL ready; read line || sleep 60",
            ])
        })
        .collect();
    for run in &mut runs {
        wait_for_output(run, "ready");
    }

    let mut urls: Vec<String> = runs.iter().map(Run::stdout).collect();
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 6);
    for run in &runs {
        run.signal(Signal::SIGTERM);
    }
    for run in &mut runs {
        assert_eq!(run.exit_code(), 143);
    }
    place.assert_clean();
}

#[test]
fn a_temporary_directory_that_is_too_deep_is_not_used() {
    let place = Place::new();
    let deep = place.0.join("x".repeat(100));
    std::fs::create_dir(&deep).unwrap();
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = place.script(&["sh", "-c", "exit 5"]);
    command.env("TMPDIR", &deep);

    let finished = Run::start(command).finish();

    assert_eq!((finished.code, &*finished.stderr), (5, ""));
}

#[test]
fn a_callers_postgres_settings_do_not_lead_it_astray() {
    let place = Place::new();
    let mut command = place.script(&["sh", "-c", "echo $PGHOST $PGOPTIONS"]);
    command.envs([
        ("PGHOST", "nowhere.invalid"),
        ("PGOPTIONS", "-c nonsense=1"),
    ]);
    command.envs([("PGDATA", "/nonexistent"), ("LC_ALL", "xx_XX")]);

    let finished = Run::start(command).finish();

    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(finished.stdout, "nowhere.invalid -c nonsense=1\n");
}

/// Stops the server of a run and looks at what the script says.
#[test]
fn a_server_that_dies_does_not_change_the_commands_exit_code() {
    let place = Place::new();
    let mut run = place.start(&["sh", "-c", "echo ready; sleep 60"]);
    wait_for_output(&mut run, "ready");
    let postmaster = postmaster(&place.0);

    kill(postmaster, Signal::SIGKILL).unwrap();
    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 143);
    place.assert_clean();
}

fn postmaster(place: &Path) -> Pid {
    let dir = std::fs::read_dir(place)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = std::fs::read_to_string(dir.join("data/postmaster.pid")).unwrap();
    Pid::from_raw(file.lines().next().unwrap().parse().unwrap())
}
