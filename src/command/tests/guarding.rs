//! dislock or the guardian is killed or stopped: the tree is dead in time nevertheless.

use super::stopping::wait_for_tree;
use super::*;

#[test]
fn kill_9_of_the_supervisor_takes_the_whole_tree() {
    for library in [false, true] {
        let setup = super::stopping::tree(true);
        let setup = if library { setup.as_library() } else { setup };
        let mut run = setup.start();
        wait_for_tree(&run);
        let guardian = run.guardian();
        run.signal(Signal::SIGKILL);
        let took = time_until("the tree is gone", || run.command_processes().is_empty());
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(run.wait(), 137);
        eventually("the guardian is gone", || !is_alive(guardian));
    }
}
