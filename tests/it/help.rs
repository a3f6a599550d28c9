//! What the program tells about itself: help, completions, the manual page. None of it needs a
//! database.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::run::{Dislock, Finished};

fn dislock(words: &[&str]) -> Finished {
    Dislock::new("no database")
        .without("DATABASE_URL")
        .without("LOCK_KEY")
        .run_args(words)
}

/// Feeds `text` to a program that reads it without a complaint.
fn assert_taken_by(program: &str, args: &[&str], text: &str) {
    let Ok(mut child) = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        eprintln!("{program} is not installed");
        return;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && complaint.is_empty(),
        "{program}: {complaint}"
    );
}

#[test]
fn the_short_help_fits_a_screen_and_the_long_one_has_examples() {
    let (short, long) = (dislock(&["-h"]), dislock(&["--help"]));

    assert_eq!((short.code, long.code), (0, 0));
    assert_eq!((&*short.stderr, &*long.stderr), ("", ""));
    assert!(short.stdout.lines().count() < 80, "{}", short.stdout);
    assert!(!short.stdout.contains("Examples:"));
    assert!(long.stdout.contains("Examples:") && long.stdout.contains("Exit codes:"));
    for line in short.stdout.lines().chain(long.stdout.lines()) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let told = dislock(&["--version"]);

    assert_eq!(told.code, 0);
    assert_eq!(
        told.stdout,
        concat!("dislock ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let made = dislock(&["--completions", shell]);
        assert_eq!(made.code, 0, "{made:?}");
        assert!(made.stdout.contains("conflict-exit-code"), "{shell}");
    }
    assert_taken_by("bash", &["-n"], &dislock(&["--completions", "bash"]).stdout);
    assert_taken_by("zsh", &["-n"], &dislock(&["--completions", "zsh"]).stdout);

    let refused = dislock(&["--completions", "tcsh"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("bash"), "{refused:?}");
}

#[test]
fn the_manual_page_is_taken_by_groff() {
    let page = dislock(&["--man"]);

    assert_eq!(page.code, 0, "{page:?}");
    assert!(page.stdout.contains(".TH dislock 1"), "{}", page.stdout);
    assert_taken_by(
        "groff",
        &["-man", "-Tutf8", "-Kutf8", "-wall"],
        &page.stdout,
    );
}

#[test]
fn an_unknown_option_suggests_the_nearest() {
    for (typo, meant) in [
        ("--strateg", "--strategy"),
        ("--relase", "--release"),
        ("--chek", "--check"),
    ] {
        let refused = dislock(&[typo, "x", "DATABASE_URL", "true"]);
        assert_eq!(refused.code, 2);
        assert!(
            refused.stderr.contains(&format!("'{meant}'")),
            "{refused:?}"
        );
    }
}

#[test]
fn what_cannot_be_written_is_a_failure() {
    for words in [
        &["-h"][..],
        &["--help"],
        &["--version"],
        &["--man"],
        &["--completions", "bash"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();

        let told = Command::new(env!("CARGO_BIN_EXE_dislock"))
            .args(words)
            .stdout(full)
            .output()
            .unwrap();

        assert_eq!(told.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8(told.stderr).unwrap();
        assert!(
            said.contains("cannot write to standard output"),
            "{words:?}: {said}"
        );
    }
}
