//! Finding the program, starting it, and what its end is worth.

use super::*;

#[test]
fn the_commands_exit_code_is_the_runs() {
    assert_eq!(Setup::new(["true"]).run(), 0);
    assert_eq!(Setup::sh("exit 7").run(), 7);
    assert_eq!(Setup::sh("exit 255").run(), 255);
}

#[test]
fn a_command_that_dies_of_a_signal_gives_128_and_its_number() {
    assert_eq!(Setup::sh("kill -SEGV $$").run(), 139);
    assert_eq!(Setup::sh("kill -KILL $$").run(), 137);
    // A real-time signal has no name.
    assert_eq!(Setup::sh("kill -40 $$").run(), 168);
}
