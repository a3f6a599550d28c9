//! One directory for everything that the tests of this process make, and its janitor.
//!
//! Guards remove what a test started, also when it panics. They cannot when the test process is
//! killed, and nothing static is dropped at exit. So the first use starts a janitor, which reads a
//! pipe whose other end only this process holds: when that ends, however it ends, the janitor kills
//! the runs, stops the servers and removes the directory.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable that marks the processes of a run; its value is the run's directory.
pub(crate) const RUN_MARK: &str = "IT_RUN";

const JANITOR: &str = r#"
trap '' INT TERM HUP QUIT
cat >/dev/null
pids=$(grep -alF "$2=$1/" /proc/[0-9]*/environ | cut -d/ -f3)
[ -z "$pids" ] || kill -KILL $pids
find "$1" -name postmaster.pid | while IFS= read -r file; do kill -QUIT "$(head -n 1 "$file")"; done
rm -rf "$1"
"#;

struct Home {
    dir: PathBuf,
    /// Never waited for; its stdin is closed by the kernel when this process ends.
    _janitor: Child,
}

/// A new directory under the tests' own, which anybody may enter and nobody else uses.
pub(crate) fn new_dir(purpose: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = home().join(format!("{purpose}-{number}"));
    std::fs::create_dir(&dir).expect("create a directory for a test");
    dir
}

fn home() -> &'static Path {
    static HOME: OnceLock<Home> = OnceLock::new();
    &HOME.get_or_init(start).dir
}

fn start() -> Home {
    let dir = tempfile::Builder::new()
        .prefix("dislock-it.")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in(parent())
        .expect("create the tests' directory")
        .keep();
    let janitor = Command::new("sh")
        .args(["-c", JANITOR, "janitor"])
        .arg(&dir)
        .arg(RUN_MARK)
        .current_dir("/")
        .process_group(0) // out of reach of Ctrl-C
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the janitor");
    Home {
        dir,
        _janitor: janitor,
    }
}

/// The temporary directory, unless it is too deep for a unix socket or closed to the server's user.
fn parent() -> PathBuf {
    let dir = std::env::temp_dir();
    let open = |d: &Path| std::fs::metadata(d).is_ok_and(|m| m.permissions().mode() & 0o001 != 0);
    if dir.as_os_str().len() <= 50 && dir.ancestors().all(open) {
        dir
    } else {
        "/tmp".into()
    }
}
