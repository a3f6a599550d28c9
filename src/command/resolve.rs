//! Which file a command's name stands for, found as `execvp` finds it, but before anything is locked.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess};

use crate::error::{Error, Kind, StartFailure, quoted};

const NOT_FOUND: &str = "command not found";
const NOT_EXECUTABLE: &str = "it cannot be executed";
/// Where `execvp` looks when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command that can be started: what to run, and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    file: PathBuf,
    /// Its name as it was given, then its arguments.
    args: Vec<OsString>,
}

impl CommandLine {
    /// Finds the program; `path` is the `PATH` of the environment.
    ///
    /// # Errors
    ///
    /// When there is no such file, or it cannot be executed, or an argument contains a NUL byte.
    pub(crate) fn resolve(args: Vec<OsString>, path: Option<&OsStr>) -> Result<Self, Error> {
        let program = args.first().map_or(OsStr::new(""), OsString::as_os_str);
        if let Some(bad) = args.iter().find(|a| a.as_bytes().contains(&0)) {
            let why = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(start_error(
                program,
                StartFailure::NotExecutable,
                &format!("argument {bad:?} contains a NUL byte"),
                why,
            ));
        }
        let file = resolve(program, path)?;
        Ok(Self { file, args })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn args(&self) -> &[OsString] {
        &self.args
    }

    /// What the kernel's refusal to start it means.
    pub(super) fn exec_error(&self, errno: Errno) -> Error {
        let program = self
            .args
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str);
        let missing = matches!(errno, Errno::ENOENT | Errno::ENOTDIR);
        let crowded = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
        if crowded.contains(&errno) {
            return Error::system(format!("cannot start {program:?}"), io::Error::from(errno));
        }
        let (failure, what) = if missing && self.file.exists() {
            (StartFailure::NotFound, "its interpreter is missing")
        } else if missing {
            (StartFailure::NotFound, NOT_FOUND)
        } else {
            (StartFailure::NotExecutable, NOT_EXECUTABLE)
        };
        start_error(program, failure, what, io::Error::from(errno))
    }
}

fn start_error(program: &OsStr, failure: StartFailure, what: &str, why: io::Error) -> Error {
    Kind::Command {
        message: format!("cannot run {}: {what}", quoted(program)),
        failure,
        source: Some(why.into()),
    }
    .into()
}

/// The file that `execvp` would run.
///
/// A name with a slash is a path. Any other is looked for in each directory of `path`, where an empty
/// item means the working directory; a file that may not be executed is remembered, and reported only
/// when no later directory has a better one.
pub(crate) fn resolve(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    if program.is_empty() {
        return Err(not_found(program, Errno::ENOENT));
    }
    if program.as_bytes().contains(&b'/') {
        return match executable(Path::new(program)) {
            Ok(()) => Ok(program.into()),
            Err(why @ (Errno::ENOENT | Errno::ENOTDIR)) => Err(not_found(program, why)),
            Err(why) => Err(not_executable(program, why)),
        };
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut refused = None;
    for directory in path.as_bytes().split(|&b| b == b':') {
        // Joining the empty path gives the bare name, which is relative to the working directory.
        let file = Path::new(OsStr::from_bytes(directory)).join(program);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(Errno::EACCES) => refused = Some(Errno::EACCES),
            // As execvp: whatever is wrong with one directory says nothing about the next.
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(why) => not_executable(program, why),
        None => not_found(program, Errno::ENOENT),
    })
}

fn executable(file: &Path) -> Result<(), Errno> {
    eaccess(file, AccessFlags::X_OK)?;
    // What `execve` says of a directory.
    if file.is_dir() {
        Err(Errno::EACCES)
    } else {
        Ok(())
    }
}

fn not_found(program: &OsStr, why: Errno) -> Error {
    start_error(program, StartFailure::NotFound, NOT_FOUND, why.into())
}

fn not_executable(program: &OsStr, why: Errno) -> Error {
    start_error(
        program,
        StartFailure::NotExecutable,
        NOT_EXECUTABLE,
        why.into(),
    )
}
