//! The recipes: each line of theirs that runs dislock is run, with the options and variables that stand
//! there and a stand-in for the job. And what has to agree within one of them agrees.

use std::process::Command;

use crate::support::home;
use crate::support::host::Host;
use crate::support::run::Finished;

const README: &str = include_str!("../../README.md");
const CRONTAB: &str = include_str!("../../recipes/crontab");
const SERVICE: &str = include_str!("../../recipes/systemd/nightly-report.service");
const TIMER: &str = include_str!("../../recipes/systemd/nightly-report.timer");
const WORKER: &str = include_str!("../../recipes/systemd/queue-worker.service");
const CRONJOB: &str = include_str!("../../recipes/kubernetes/cronjob.yaml");
const DOCKERFILE: &str = include_str!("../../recipes/docker/Dockerfile");
const WORKFLOW: &str = include_str!("../../recipes/github/deploy.yml");

/// How long dislock may take after the command's end: the default kill grace, and the release.
const TIME_TO_STOP: u32 = 10 + 5;

#[track_caller]
fn assert_ran(finished: &Finished, job_and_arguments: &str) {
    let (job, arguments) = job_and_arguments.split_once(' ').unwrap();
    let expected = format!("{job} ran: {arguments}");
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_eq!(finished.stdout.trim(), expected.trim());
    assert_eq!(finished.stderr, "");
}

/// The lines that are neither blank nor comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The values of `name=…`, `name: …` or the like, without quotes.
fn values<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    lines(text)
        .filter_map(|line| Some(line.strip_prefix(name)?.trim().trim_matches('"')))
        .collect()
}

#[track_caller]
fn value<'t>(text: &'t str, name: &str) -> &'t str {
    let found = values(text, name);
    assert_eq!(found.len(), 1, "{name} in {text}");
    found[0]
}

/// The value of an option on a command line.
fn option<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(name).unwrap();
    rest.split('"').nth(1).unwrap()
}

#[track_caller]
fn assert_every_job_runs(crontab: &str, expected: usize) {
    let host = Host::new();
    let (variables, jobs): (Vec<&str>, Vec<&str>) =
        lines(crontab).partition(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let variables: Vec<_> = variables
        .iter()
        .map(|v| v.split_once('=').unwrap())
        .collect();
    // cron's own PATH leaves dislock out.
    assert!(value(crontab, "PATH=").starts_with("/usr/local/bin:"));

    assert_eq!(jobs.len(), expected);
    for job in jobs {
        let fields: Vec<&str> = job.split_whitespace().take(5).collect();
        let command = &job[job.find("dislock").unwrap()..];
        let finished = host.run(command, &variables);
        match command.split_once("DATABASE_URL ") {
            Some((options, job)) => {
                assert_eq!(option(options, "--cron"), fields.join(" "));
                assert_ran(&finished, &format!("{job} "));
            }
            None => assert_eq!((finished.code, &*finished.stderr), (0, ""), "{job}"),
        }
    }
}

#[test]
fn every_line_of_the_crontab_does_its_job() {
    assert_every_job_runs(CRONTAB, 4);
}

#[test]
fn the_readmes_first_lines_are_a_crontab_that_does_its_job() {
    let (_, crontab) = README.split_once("```text\n").unwrap();

    assert_every_job_runs(crontab.split("```").next().unwrap(), 1);
}

#[test]
fn a_unit_starts_its_job() {
    for (unit, job) in [(SERVICE, "nightly-report --all"), (WORKER, "queue-worker ")] {
        let variables: Vec<_> = values(unit, "Environment=")
            .iter()
            .map(|v| v.split_once('=').unwrap())
            .collect();

        let finished = Host::new().run(value(unit, "ExecStart="), &variables);

        assert_ran(&finished, job);
        let time: u32 = value(unit, "TimeoutStopSec=").parse().unwrap();
        assert!(time >= TIME_TO_STOP, "{time}");
    }
}

#[test]
fn the_timer_fires_at_the_ticks_of_the_service() {
    let cron = option(value(SERVICE, "ExecStart="), "--cron");
    let zone = value(SERVICE, "Environment=LOCK_TIMEZONE=");
    let fields: Vec<&str> = cron.split(' ').collect();

    assert_eq!(fields[2..], ["*"; 3]);
    assert_eq!(
        value(TIMER, "OnCalendar="),
        format!("*-*-* {:0>2}:{:0>2}:00 {zone}", fields[1], fields[0])
    );
}

#[test]
fn the_units_are_taken_by_systemd() {
    let dir = home::new_dir("units");
    let mut files = Vec::new();
    for (name, unit) in [
        ("nightly-report.service", SERVICE),
        ("nightly-report.timer", TIMER),
        ("queue-worker.service", WORKER),
    ] {
        // It looks whether the program is there.
        let unit = unit.replace("/usr/local/bin/dislock", env!("CARGO_BIN_EXE_dislock"));
        let file = dir.join(name);
        std::fs::write(&file, unit).unwrap();
        files.push(file);
    }

    let Ok(output) = Command::new("systemd-analyze")
        .arg("verify")
        .args(&files)
        .output()
    else {
        eprintln!("systemd-analyze is not installed");
        return;
    };

    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaint.is_empty(),
        "{complaint}"
    );
}

/// The items of a list in YAML, one a line.
fn items<'t>(yaml: &'t str, name: &str) -> Vec<&'t str> {
    let mut lines = lines(yaml).skip_while(|line| *line != name);
    assert_eq!(lines.next(), Some(name));
    lines.map_while(|line| line.strip_prefix("- ")).collect()
}

#[test]
fn a_pod_of_the_cronjob_starts_its_job() {
    let mut words = items(CRONJOB, "command:");
    words.extend(items(CRONJOB, "args:"));
    let variables: Vec<_> = values(CRONJOB, "- name: ")
        .into_iter()
        .filter(|name| {
            name.starts_with(|c: char| c.is_ascii_uppercase()) && *name != "DATABASE_URL"
        })
        .map(|name| {
            let (_, rest) = CRONJOB.split_once(&format!("- name: {name}\n")).unwrap();
            let value = rest.trim_start().strip_prefix("value: ").unwrap();
            (name, value.lines().next().unwrap().trim_matches('"'))
        })
        // Or the log would stand between us and the job's output.
        .filter(|(name, _)| !name.starts_with("CRONJOB_LOCK_LOG"))
        .collect();

    let finished = Host::new().run(&words.join(" "), &variables);

    assert_ran(&finished, "nightly-report --all");
    assert!(variables.contains(&("CRON_SCHEDULE", value(CRONJOB, "schedule:"))));
    assert!(variables.contains(&("LOCK_TIMEZONE", value(CRONJOB, "timeZone:"))));
    let time: u32 = value(CRONJOB, "terminationGracePeriodSeconds:")
        .parse()
        .unwrap();
    assert!(time > TIME_TO_STOP, "{time}");
}

/// The words of an instruction that is written as a JSON array.
fn array(dockerfile: &str, instruction: &str) -> String {
    let array = value(dockerfile, instruction).trim_matches(['[', ']']);
    array.replace([',', '"'], "")
}

#[test]
fn the_image_starts_its_job() {
    let variables: Vec<_> = value(DOCKERFILE, "ENV ")
        .split(' ')
        .map(|v| v.split_once('=').unwrap())
        .chain([("LOCK_KEY", "worker")])
        .collect();
    let line = format!(
        "{} {}",
        array(DOCKERFILE, "ENTRYPOINT "),
        array(DOCKERFILE, "CMD ")
    );

    assert_ran(&Host::new().run(&line, &variables), "queue-worker ");
}

#[test]
fn the_workflow_step_starts_its_job() {
    let (_, script) = WORKFLOW.split_once("run: |\n").unwrap();

    assert_ran(&Host::new().run(script.trim(), &[]), "deploy.sh production");
}
