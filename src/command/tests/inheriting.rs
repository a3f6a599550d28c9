//! What the command gets from whoever started dislock: everything, unchanged.

use super::*;

/// The files that a script wrote with and without dislock around it.
fn with_and_without(script: &str, prepare: &str) -> [String; 2] {
    let with = Setup::sh(script);
    let inner = with.command;
    let directory = &with.directory;
    let mut results = Vec::new();
    for dislock in [true, false] {
        let mut outer = Command::new("sh");
        if dislock {
            let program = inner.get_program();
            outer
                .arg("-c")
                .arg(format!("{prepare} \"$0\""))
                .arg(program);
            outer.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        } else {
            let script = format!("{prepare} sh -c \"$0\"");
            outer.arg("-c").arg(script).arg(script_of(&inner));
            outer.env("D", directory.path());
        }
        let output = directory.path().join("output");
        let _ = fs::remove_file(&output);
        outer.stdin(Stdio::null());
        assert!(outer.status().unwrap().success());
        results.push(fs::read_to_string(output).unwrap());
    }
    results.try_into().unwrap()
}

fn script_of(command: &Command) -> OsString {
    let args = command
        .get_envs()
        .find(|(k, _)| *k == ARGS)
        .unwrap()
        .1
        .unwrap();
    let script = args.as_bytes().split(|&b| b == SEPARATOR).nth(2).unwrap();
    OsString::from_vec(script.to_vec())
}

const SIGNALS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status > $D/output";

#[test]
fn signal_mask_and_ignored_signals_are_the_same_with_and_without_dislock() {
    let [with, without] = with_and_without(SIGNALS, "exec");
    assert_eq!(with, without);
}

#[test]
fn ignored_signals_stay_ignored() {
    for prepare in [
        "trap '' HUP;",
        "nohup",
        "trap '' INT QUIT TERM USR1 WINCH TSTP; exec",
    ] {
        let [with, without] = with_and_without(SIGNALS, prepare);
        assert_eq!(with, without, "{prepare}");
        assert!(with.contains("SigIgn") && !with.contains("SigIgn:\t0000000000000000"));
    }
}

/// The set in one line of the output, without the two signals that libc has taken over in a program
/// with threads: a plain child does not get those either.
fn set(output: &str, name: &str) -> u64 {
    let line = output.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim_start_matches([':', '\t']), 16).unwrap() & !(0b11 << 31)
}

#[test]
fn sigchld_ignored_by_the_parent_is_default_for_the_command() {
    let [with, _] = with_and_without(SIGNALS, "trap '' CHLD; exec");
    assert_eq!(set(&with, "SigIgn"), 0);
}

#[test]
fn the_commands_status_is_known_though_the_parent_ignores_sigchld() {
    let setup = Setup::new(["sh", "-c", "exit 7"]);
    let mut outer = Command::new("sh");
    outer
        .arg("-c")
        .arg("trap '' CHLD; exec \"$0\"")
        .arg(setup.command.get_program());
    outer.envs(setup.command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    assert_eq!(outer.status().unwrap().code(), Some(7));
}

#[test]
fn a_program_that_blocks_and_handles_signals_passes_on_what_a_plain_child_gets() {
    let prepare = "trap '' HUP; exec env TEST_AS_LIBRARY=1";
    let [with, without] = with_and_without(SIGNALS, prepare);
    assert_eq!(set(&with, "SigBlk"), set(&without, "SigBlk"));
    assert_eq!(set(&with, "SigIgn"), set(&without, "SigIgn"));
}

#[test]
fn open_descriptors_reach_the_command_and_none_of_ours_does() {
    let script = "ls /proc/self/fd > $D/output; cat <&7 >> $D/output";
    let prepare = "echo data > $D/in; exec 5<&0 7< $D/in; exec";
    let [with, without] = with_and_without(script, prepare);
    assert_eq!(with, without);
    assert!(with.contains("data"), "{with}");
}

#[test]
fn limits_niceness_and_working_directory_are_inherited() {
    let script = "{ pwd; ulimit -n; ulimit -c; umask; nice; } > $D/output";
    let prepare = "cd /usr; ulimit -n 123; umask 027; exec nice -n 3";
    let [with, without] = with_and_without(script, prepare);
    assert_eq!(with, without);
    assert!(with.starts_with("/usr\n123\n"), "{with}");
}

#[test]
fn bytes_that_are_not_utf_8_pass() {
    let bytes = OsStr::from_bytes(b"\xff\xfe\n \x01");
    let script = OsStr::new("printf %s \"$1|$ODD\" > \"$D/output\"");
    let args = [
        OsStr::new("sh"),
        OsStr::new("-c"),
        script,
        OsStr::new("sh"),
        bytes,
    ];
    let setup = Setup::new(args).env("ODD", bytes);
    let directory = setup.directory.path().to_owned();
    let mut run = setup.env("D", &directory).start();
    assert_eq!(run.wait(), 0);
    assert_eq!(
        fs::read(run.path("output")).unwrap(),
        b"\xff\xfe\n \x01|\xff\xfe\n \x01"
    );
}

#[test]
fn additions_replace_what_the_environment_had() {
    let mut run = Setup::sh(
        "echo $DISLOCK_TEST_RUN > $D/output; env | grep -c ^DISLOCK_TEST_RUN= >> $D/output",
    )
    .start();
    assert_eq!(run.wait(), 0);
    let expected = format!("{}\n1\n", run.mark);
    assert_eq!(fs::read_to_string(run.path("output")).unwrap(), expected);
}

#[test]
fn the_command_leads_its_own_group_and_is_no_subreaper() {
    let script = "cut -d' ' -f5 /proc/$$/stat > $D/group; echo $$ > $D/pid
        (sh -c 'echo $$ > $D/child; while ! [ -e $D/go ]; do sleep 0.01; done
            cut -d\" \" -f4 /proc/$$/stat > $D/parent' &)
        while ! [ -s $D/parent ]; do sleep 0.01; done";
    let mut run = Setup::sh(script).start();
    let guardian = run.guardian();
    assert_eq!(run.number_in("group"), run.number_in("pid"));
    // Whoever forked it has ended by now, or will have.
    let child = run.number_in("child");
    eventually("the child is an orphan", || {
        process_info(child).is_some_and(|p| p.parent == guardian)
    });
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.number_in("parent"), guardian);
    assert_eq!(run.wait(), 0);
}
