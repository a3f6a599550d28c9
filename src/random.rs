//! Random numbers, straight from the system.
//!
//! A thread's own generator goes on with the same numbers in every child of a fork, and in every copy of a
//! virtual machine: all of them would be the same holder, wait for the same time and prefer the same host.

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

pub(crate) fn number() -> u64 {
    SysRng.try_next_u64().unwrap_or_else(|_| rand::random())
}

/// At least 0, and less than 1.
pub(crate) fn fraction() -> f64 {
    generator().random()
}

pub(crate) fn generator() -> StdRng {
    StdRng::seed_from_u64(number())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::forks::in_child;

    #[test]
    fn children_of_one_parent_draw_different_numbers() {
        let byte = || fraction().to_bits().to_ne_bytes()[3];
        byte();

        let drawn = [(); 8].map(|()| in_child(byte));

        assert!(drawn.iter().any(|byte| *byte != drawn[0]), "{drawn:?}");
    }
}
