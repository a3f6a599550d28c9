//! A host as the recipes and the documents assume it, on which their command lines can be run.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use super::database::Database;
use super::home;
use super::run::{Finished, Run};

/// The jobs of the recipes and the documents.
const JOBS: [&str; 7] = [
    "nightly-report",
    "import-orders",
    "prune-sessions",
    "queue-worker",
    "./deploy.sh",
    "report.sh",
    "python3",
];

/// A host with dislock, the jobs and a database.
pub(crate) struct Host {
    database: Database,
    dir: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Self {
        let dir = home::new_dir("recipe");
        symlink(env!("CARGO_BIN_EXE_dislock"), dir.join("dislock")).unwrap();
        for job in JOBS {
            let path = dir.join(job);
            std::fs::write(&path, "#!/bin/sh\necho \"${0##*/} ran: $*\"\n").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let database = Database::new();
        Self { database, dir }
    }

    /// Runs a line as a shell does, with these variables and no others.
    pub(crate) fn run(&self, line: &str, variables: &[(&str, &str)]) -> Finished {
        let line = line.replace("/usr/local/bin", &self.dir.to_string_lossy());
        let mut command = Command::new("/bin/bash");
        command.args(["-e", "-c", &line]).current_dir(&self.dir);
        command.env_clear().envs(variables.iter().copied());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.dir.display()));
        command.env("DATABASE_URL", self.database.url());
        Run::start(command).finish()
    }
}
