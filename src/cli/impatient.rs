//! Writing to a descriptor without ever waiting for its reader.
//!
//! A log line is written by the thread that renews the lease, or by the one that stops the command. A
//! pipe that nobody reads any more must not hold either of them up: the line is lost instead.

use std::io::{self, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

/// What a pipe that has room at all takes in one piece (`PIPE_BUF` on Linux).
const PIECE: usize = 4096;

/// A descriptor to which nothing is written that would have to wait.
#[derive(Debug)]
pub(super) struct Impatient<F>(pub(super) F);

impl<F: AsFd> Write for Impatient<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
        let ready = poll(&mut fds, PollTimeout::ZERO)? > 0;
        if !ready {
            // Lost: said to be written, or somebody would try again.
            return Ok(line.len());
        }
        Ok(write(self.0.as_fd(), &line[..line.len().min(PIECE)])?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::time::{Duration, Instant};

    use nix::fcntl::OFlag;

    use super::*;

    fn pipe() -> (File, File) {
        // Or the programs that other tests start meanwhile would hold it open as long as they run.
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        (reader.into(), writer.into())
    }

    #[test]
    fn a_pipe_that_nobody_reads_costs_lines_and_no_time() {
        let (mut reader, writer) = pipe();
        let mut writer = Impatient(writer);
        let line = [b'x'; 100];
        let started = Instant::now();
        // Much more than a pipe holds.
        for _ in 0..20_000 {
            writer.write_all(&line).unwrap();
        }
        assert!(started.elapsed() < Duration::from_secs(10));
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(
            got.len() < 2_000_000 && got.len() % line.len() == 0,
            "whole lines"
        );
    }

    #[test]
    fn what_is_longer_than_a_piece_arrives_whole_where_there_is_room() {
        let (mut reader, writer) = pipe();
        let line = [b'x'; 3 * PIECE + 1];
        Impatient(writer).write_all(&line).unwrap();
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, line);
    }

    #[test]
    fn a_broken_pipe_is_an_error_and_not_a_signal() {
        let (reader, writer) = pipe();
        let mut writer = Impatient(writer);
        drop(reader);
        // A child that another test is just starting may have a copy of the reader for a moment.
        let end = Instant::now() + Duration::from_secs(10);
        let error = loop {
            match writer.write_all(b"x") {
                Ok(()) => assert!(Instant::now() < end, "somebody reads"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
