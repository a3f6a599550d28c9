//! Running a command under locks without blocking the caller's task.

use std::ffi::{OsStr, OsString};

use crate::context::{LockContext, LockStrategy};
use crate::error::{Error, Result};

/// [`crate::run_with_locks`] on a thread for blocking work: supervision waits for processes, not for
/// sockets, and must not depend on how busy the runtime is.
///
/// Dropping the future does not stop the command: its supervision goes on, and releases the locks at
/// its end.
///
/// # Errors
///
/// As [`crate::run_with_locks`].
pub async fn run_with_locks<S: AsRef<OsStr>>(
    command: impl IntoIterator<Item = S>,
    ctx: &LockContext,
    strategies: &[LockStrategy],
) -> Result<i32> {
    let command: Vec<OsString> = command
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect();
    let (ctx, strategies) = (ctx.clone(), strategies.to_vec());
    let run = move || crate::command::run_with_locks(command, &ctx, &strategies);
    tokio::task::spawn_blocking(run)
        .await
        .map_err(|error| Error::system("the supervision of the command was ended", error))?
}
