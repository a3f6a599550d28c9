use super::*;
use std::os::unix::ffi::OsStringExt;

fn parse(line: &[&str]) -> Result<Args, clap::Error> {
    Args::read(std::iter::once("dislock").chain(line.iter().copied()))
}

#[test]
fn the_definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn everything_after_the_first_word_is_the_command_untouched() {
    let cases: &[&[&str]] = &[
        &["U", "ls", "--help"],
        &["U", "ls", "-h", "--version"],
        &["U", "sh", "-c", "--", "x"],
        &["U", "--", "ls"],
        &["U", "--key", "x"],
        &["U", "ls", "--key", "x", "--nonsense", "-"],
        &["U", "ls", "", "--", "--"],
    ];
    for words in cases {
        let args = parse(words).unwrap();
        assert_eq!(args.words, *words, "{words:?}");
        assert_eq!(args.key, None);
    }
}

#[test]
fn options_before_the_first_word_are_ours() {
    let args = parse(&["--key", "k", "--ttl=5", "--", "U", "ls", "--ttl=6"]).unwrap();
    assert_eq!(args.key.unwrap(), "k");
    assert_eq!(args.ttl.unwrap(), "5");
    assert_eq!(args.words, ["U", "ls", "--ttl=6"]);
}

#[test]
fn bytes_that_are_not_utf8_pass() {
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    let line = [
        OsString::from("dislock"),
        OsString::from("--key"),
        odd.clone(),
        OsString::from("U"),
        odd.clone(),
        odd.clone(),
    ];
    let args = Args::read(line).unwrap();
    assert_eq!(args.key, Some(odd.clone()));
    assert_eq!(args.words[1..], [odd.clone(), odd]);
}

#[test]
fn the_last_of_repeated_options_wins() {
    let args = parse(&["--key", "a", "--key", "b", "U", "ls"]).unwrap();
    assert_eq!(args.key.unwrap(), "b");
}

#[test]
fn negative_numbers_and_empty_values_are_values() {
    let args = parse(&["--ttl", "-5", "--jitter", "-0.5", "--key", "", "U", "ls"]).unwrap();
    assert_eq!(args.ttl.unwrap(), "-5");
    assert_eq!(args.jitter.unwrap(), "-0.5");
    assert_eq!(args.key.unwrap(), "");
}

#[test]
fn missing_words_and_unknown_options_are_usage_errors() {
    let cases: &[&[&str]] = &[
        &[],
        &["U"],
        &["--key", "k"],
        &["--nonsense", "U", "ls"],
        &["-k", "U", "ls"],
        &["--ttl"],
        &["--", "U"],
    ];
    for line in cases {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line:?}");
        assert!(error.use_stderr(), "{line:?}");
    }
}

#[test]
fn a_task_takes_the_place_of_a_command() {
    let cases: &[(&[&str], Task)] = &[
        (&["--init", "U"], Task::Init),
        (
            &["--list", "--json", "U"],
            Task::List {
                all: false,
                json: true,
            },
        ),
        (
            &["--release", "-k", "--force", "U"],
            Task::Release {
                key: "-k".into(),
                force: true,
            },
        ),
        (&["--prune", "-1", "U"], Task::Prune { age: "-1".into() }),
        (&["--check", "--key", "k", "U"], Task::Check),
        (&["--check", "U", "ls", "--init"], Task::Check),
        (&["--man"], Task::Man),
    ];
    for (line, task) in cases {
        assert_eq!(parse(line).unwrap().task().as_ref(), Some(task), "{line:?}");
    }
    assert_eq!(parse(&["U", "--init"]).unwrap().task(), None);
}

#[test]
fn two_tasks_or_words_after_one_are_usage_errors() {
    let cases: &[&[&str]] = &[
        &["--init", "--list", "U"],
        &["--release", "k", "--prune", "1", "U"],
        &["--check", "--man", "U"],
        &["--list"],
        &["--list", "U", "--json"],
        &["--init", "U", "ls"],
        &["--man", "U"],
        &["--json", "U", "ls"],
        &["--all", "--init", "U"],
        &["--force", "--list", "U"],
        &["--release", "U"],
        &["--prune", "--force", "U"],
        &["--completions", "tcsh"],
        &["--list", "--key", "q", "U"],
        &["--list", "--strategy", "lease", "U"],
        &["--prune", "1d", "--key", "q", "U"],
        &["--prune", "1d", "--strategy", "lease", "U"],
        &["--release", "k", "--key", "q", "U"],
    ];
    for line in cases {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line:?}");
    }
}

#[test]
fn an_unknown_option_suggests_the_nearest() {
    let message = parse(&["--strateg", "lease", "U", "ls"])
        .unwrap_err()
        .to_string();
    assert!(message.contains("'--strategy'"), "{message}");
}

#[test]
fn a_url_in_the_wrong_place_is_not_echoed_by_a_usage_error() {
    let url = "postgres://u:hunter2@h/db";
    let joined = format!("--url={url}");
    let cases: &[&[&str]] = &[&[url], &["--url", url, "ls"], &[&joined, "U", "ls"]];
    for line in cases {
        let message = parse(line).unwrap_err().to_string();
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_url_as_the_value_or_in_place_of_an_option_is_not_echoed() {
    for url in ["postgres://u:hunter2@h/db", "host=h;password=hunter2"] {
        for option in [
            "--init",
            "--list",
            "--check",
            "--json",
            "--all",
            "--force",
            "--man",
            "--help",
            "--version",
            "--completions",
        ] {
            let message = parse(&[&format!("{option}={url}"), "U"])
                .unwrap_err()
                .to_string();
            assert!(
                message.contains("'…'") && message.contains(option),
                "{message}"
            );
            assert!(!message.contains("hunter2"), "{message}");
        }
        for line in [
            &["--completions", url][..],
            &[&format!("--{url}"), "U", "ls"],
            &["--release", url],
            &["--prune", url],
        ] {
            let message = parse(line).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
    let message = parse(&["--completions", "tcsh"]).unwrap_err().to_string();
    assert!(
        message.contains("'tcsh' for '--completions <SHELL>'"),
        "{message}"
    );
}

#[test]
fn help_and_version_go_to_stdout_with_exit_0() {
    for (line, kind) in [
        ("-h", ErrorKind::DisplayHelp),
        ("--help", ErrorKind::DisplayHelp),
        ("--version", ErrorKind::DisplayVersion),
        ("-V", ErrorKind::DisplayVersion),
    ] {
        let shown = parse(&[line]).unwrap_err();
        assert_eq!(shown.kind(), kind);
        assert_eq!((shown.exit_code(), shown.use_stderr()), (0, false));
    }
}

#[test]
fn only_the_long_help_has_examples_and_exit_codes() {
    let short = parse(&["-h"]).unwrap_err().to_string();
    let long = parse(&["--help"]).unwrap_err().to_string();
    for heading in ["Examples:", "Exit codes:"] {
        assert!(long.contains(heading), "{long}");
        assert!(!short.contains(heading), "{short}");
    }
}

#[test]
fn an_unknown_option_is_not_advised_to_stand_behind_two_dashes() {
    let message = |option| parse(&[option, "x", "URL", "ls"]).unwrap_err().to_string();
    assert!(!message("--kye").contains("'-- "), "{}", message("--kye"));
    assert!(
        message("--corn").contains("--cron"),
        "{}",
        message("--corn")
    );
}
