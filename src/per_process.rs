//! What every process has one of.
//!
//! A child of a fork has a copy of its parent's memory, but of its threads only the one that forked. What
//! another thread had locked stays locked there for ever, and what another thread was about to make is
//! never finished. So a child has a value of its own, and the copy of its parent's is left alone for ever.
//! For the same reason nothing on the way to the value waits for another thread: whoever comes first
//! wins, where a `OnceLock` would wait for whoever began.

use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceBox;

#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// Whose value this is: the first process's that asked for it; 0 before.
    process: AtomicU32,
    value: OnceBox<T>,
    /// That of a process that was forked from that one.
    forked: OnceBox<Self>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            value: OnceBox::new(),
            forked: OnceBox::new(),
        }
    }

    /// This process's value. `new` makes it when there is none; threads that come at the same time may
    /// each make one, and all get the same.
    pub(crate) fn get_or_init(&self, new: impl Fn() -> T) -> &T {
        self.of(std::process::id(), new)
    }

    fn of(&self, process: u32, new: impl Fn() -> T) -> &T {
        let mut place = self;
        while !place.is_for(process) {
            place = place.forked.get_or_init(|| Box::new(Self::new()));
        }
        place.value.get_or_init(|| Box::new(new()))
    }

    fn is_for(&self, process: u32) -> bool {
        let first = self
            .process
            .compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed);
        first.is_ok() || first == Err(process)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_process_has_a_value_of_its_own() {
        let values = PerProcess::new();
        for _ in 0..2 {
            for process in [7, 8, 9] {
                assert_eq!(*values.of(process, || process), process);
            }
        }
    }

    /// As a child must not that was forked while another thread of its parent's made one.
    #[test]
    fn a_value_is_found_without_waiting_for_whoever_makes_one() {
        for process in [2, 3] {
            let values = Arc::new(PerProcess::new());
            values.of(1, || 1);
            let (begun, is_begun) = mpsc::channel();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let slow = Arc::clone(&values);
            let maker = thread::spawn(move || {
                *slow.of(2, || {
                    begun.send(()).unwrap();
                    let _ = may_go_on.recv();
                    2
                })
            });
            is_begun.recv().unwrap();
            let (found, is_found) = mpsc::channel();
            let quick = Arc::clone(&values);
            thread::spawn(move || found.send(*quick.of(process, || process)));

            let value = is_found.recv_timeout(Duration::from_secs(10));

            assert_eq!(value, Ok(process));
            drop(go_on);
            assert_eq!(maker.join().unwrap(), 2);
        }
    }
}
