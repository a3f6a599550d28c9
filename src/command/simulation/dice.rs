//! The one source of chance of a schedule: the same seed makes the same schedule.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::clocks::Nanos;

pub(super) struct Dice(StdRng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// Uniform in [0, 1).
    pub(super) fn share(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform from zero to `most`.
    pub(super) fn up_to(&mut self, most: Nanos) -> Nanos {
        self.0.random_range(0..=most)
    }

    pub(super) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.random_range(0..from.len())]
    }
}
