//! Finding the program, starting it, and what its end is worth.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::error::{Kind, StartFailure};

#[test]
fn the_commands_exit_code_is_the_runs() {
    assert_eq!(Setup::new(["true"]).run(), 0);
    assert_eq!(Setup::sh("exit 7").run(), 7);
    assert_eq!(Setup::sh("exit 255").run(), 255);
}

#[test]
fn a_command_that_dies_of_a_signal_gives_128_and_its_number() {
    assert_eq!(Setup::sh("ulimit -c 0; kill -SEGV $$").run(), 139);
    assert_eq!(Setup::sh("kill -KILL $$").run(), 137);
    // A real-time signal has no name.
    assert_eq!(Setup::sh("kill -40 $$").run(), 168);
}

fn file(directory: &TempDir, name: &str, content: &str, mode: u32) -> String {
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn failure(args: &[&str], path: &str) -> StartFailure {
    let error = resolve(args, path).unwrap_err();
    let Kind::Command { failure, .. } = error.kind() else {
        panic!("{error:?}");
    };
    *failure
}

#[test]
fn a_program_is_found_as_execvp_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|d| {
        let path = directory.path().join(d);
        fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    });
    file(&directory, "first/refused", "", 0o644);
    file(&directory, "second/refused", "", 0o755);
    file(&directory, "first/only-refused", "", 0o644);
    fs::create_dir(directory.path().join("first/folder")).unwrap();
    symlink("refused", directory.path().join("second/link")).unwrap();
    symlink("nowhere", directory.path().join("second/dangling")).unwrap();
    let path = format!("/no/such:{first}:{second}");
    let found = |name: &str| resolve(&[name], &path).unwrap().file().to_owned();

    assert_eq!(found("refused"), Path::new(&second).join("refused"));
    assert_eq!(found("link"), Path::new(&second).join("link"));
    let direct = format!("{second}/refused");
    assert_eq!(found(&direct), Path::new(&direct));
    assert_eq!(
        failure(&["only-refused"], &path),
        StartFailure::NotExecutable
    );
    assert_eq!(failure(&["folder"], &path), StartFailure::NotExecutable);
    assert_eq!(failure(&["dangling"], &path), StartFailure::NotFound);
    assert_eq!(failure(&["missing"], &path), StartFailure::NotFound);
    assert_eq!(failure(&[""], &path), StartFailure::NotFound);
    assert_eq!(failure(&[&first], &path), StartFailure::NotExecutable);
    assert_eq!(
        failure(&[&format!("{second}/refused/x")], &path),
        StartFailure::NotFound
    );
    assert_eq!(
        failure(&["/no/such/command"], &path),
        StartFailure::NotFound
    );
}

#[test]
fn an_empty_item_of_path_is_the_working_directory() {
    // The tests run in the package's directory, which has no programs: look for a file of it.
    assert_eq!(
        failure(&["Cargo.toml"], ":/bin"),
        StartFailure::NotExecutable
    );
    assert_eq!(failure(&["Cargo.toml"], "/bin"), StartFailure::NotFound);
}

#[test]
fn an_error_names_the_command_and_the_reason() {
    let error = resolve(&["no-such-command"], "/bin").unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "cannot run \"no-such-command\": command not found: No such file or directory (os error 2)"
    );
}

/// As in `dislock DATABASE_URL "$DATABASE_URL" psql`.
#[test]
fn a_url_in_place_of_the_command_is_not_shown() {
    for word in ["postgresql://app:hunter2@h/d", "host=h;password=hunter2"] {
        let error = resolve(&[word], "/bin").unwrap_err();
        assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
    }
}

#[test]
fn a_missing_interpreter_is_127_and_a_corrupt_program_126() {
    let directory = tempfile::tempdir().unwrap();
    let no_interpreter = file(&directory, "script", "#!/no/such/interpreter\n", 0o755);
    assert_eq!(Setup::new([&no_interpreter]).run(), 127);
    let corrupt = file(&directory, "corrupt", "\x7fELF but nothing else", 0o755);
    // Not by `sh` either, which says so itself.
    assert!(matches!(Setup::new([&corrupt]).run(), 126 | 127 | 2));
}

#[test]
fn a_file_without_an_interpreter_line_runs_by_sh() {
    let directory = tempfile::tempdir().unwrap();
    let script = file(&directory, "script", "exit $(($1 + $2))\n", 0o755);
    assert_eq!(Setup::new([&script, "3", "4"]).run(), 7);
}

#[test]
fn a_file_that_is_still_being_written_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = file(&directory, "program", "", 0o755);
    fs::copy("/bin/true", &program).unwrap();
    let writer = fs::File::options().append(true).open(&program).unwrap();
    let mut run = Setup::new([&program]).start();
    // It is being tried now: the command's process is there, and not yet the program.
    run.guardian();
    thread::sleep(Duration::from_millis(50));
    assert!(run.process.try_wait().unwrap().is_none());
    drop(writer);
    assert_eq!(run.wait(), 0);
}

#[test]
fn a_file_that_stays_open_for_writing_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let program = file(&directory, "program", "", 0o755);
    fs::copy("/bin/true", &program).unwrap();
    let writer = fs::File::options().append(true).open(&program).unwrap();
    let start = Instant::now();
    assert_eq!(Setup::new([&program]).run(), 126);
    assert!(start.elapsed() < AT_ONCE);
    drop(writer);
}

#[test]
fn arguments_that_do_not_fit_are_an_error_of_the_command() {
    let long = "x".repeat(200_000);
    assert_eq!(Setup::sh("exit 0").env("D", "/").run(), 0);
    let setup = Setup::new(["true"]);
    // Longer than one argument may be; through a file, as it cannot be passed to the helper either.
    let file = setup.directory.path().join("argument");
    fs::write(&file, long).unwrap();
    assert_eq!(setup.env(LONG, file).run(), 126);
}

#[test]
fn a_large_environment_passes() {
    let setup = Setup::sh("test ${#BIG} = 120000 && test ${#MORE} = 120000");
    let big = "x".repeat(120_000);
    assert_eq!(setup.env("BIG", &big).env("MORE", &big).run(), 0);
}
