//! The leases that a keeper renews: which are due, which are in the statement that is under way.
//!
//! Each lease is in one of three places: it waits for its time, it is in the *batch* under way, or it
//! was removed. A lease that is removed while it is in a batch stays removed: whatever the batch comes
//! to, it is not put back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::context::LockContext;
use crate::lease::LeaseState;
use crate::rules::lease::{Loss, early_by};
use crate::rules::retry::Backoff;

/// The most leases in one statement, so that it stays a short one.
const LARGEST_BATCH: usize = 2000;

/// A lease to be renewed.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) ctx: LockContext,
    pub(crate) state: Arc<LeaseState>,
}

/// One of the leases of a batch.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) id: u64,
    pub(crate) holding: Holding,
    /// How often its row was found locked since the last renewal.
    pub(crate) backoff: Backoff,
}

/// What is under way in one statement.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) due: Vec<Due>,
    /// Leases that ran out before they could be renewed. They are no longer among those held.
    pub(crate) expired: Vec<Holding>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty() && self.expired.is_empty()
    }
}

#[derive(Debug)]
struct Held {
    holding: Holding,
    backoff: Backoff,
    /// When it is due, unless it is in a batch.
    due_at: Option<BootInstant>,
}

#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: HashMap<u64, Held>,
    /// How many leases have which TTL.
    ttls: BTreeMap<Duration, usize>,
    waiting: BTreeSet<(BootInstant, u64)>,
    last_id: u64,
    /// Batches are numbered; the one under way has this number.
    batch: u64,
}

impl Holdings {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Adds a lease and answers by what it is known.
    pub(crate) fn add(&mut self, holding: Holding) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let due_at = holding.state.renew_at();
        self.waiting.insert((due_at, id));
        *self.ttls.entry(holding.ctx.ttl()).or_default() += 1;
        self.held.insert(
            id,
            Held {
                holding,
                backoff: Backoff::default(),
                due_at: Some(due_at),
            },
        );
        id
    }

    /// Removes a lease; answers the number of the batch that it is in, if it is in one.
    pub(crate) fn remove(&mut self, id: u64) -> Option<u64> {
        let held = self.take_out(id)?;
        match held.due_at {
            Some(at) => {
                self.waiting.remove(&(at, id));
                None
            }
            None => Some(self.batch),
        }
    }

    fn take_out(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        if let Entry::Occupied(mut leases) = self.ttls.entry(held.holding.ctx.ttl()) {
            *leases.get_mut() -= 1;
            if *leases.get() == 0 {
                leases.remove();
            }
        }
        Some(held)
    }

    /// The shortest TTL of all leases that are held.
    pub(crate) fn shortest_ttl(&self) -> Option<Duration> {
        self.ttls.first_key_value().map(|(ttl, _)| *ttl)
    }

    /// When the first lease is due that is not in a batch.
    pub(crate) fn next_due(&self) -> Option<BootInstant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Starts a batch of all that is due at `now`, and of what is almost due: leases that were taken
    /// at about the same time come to be renewed together. Answers its number, too.
    pub(crate) fn take_due(&mut self, now: BootInstant) -> (u64, Batch) {
        self.batch += 1;
        let mut batch = Batch::default();
        if self.next_due().is_none_or(|at| at > now) {
            return (self.batch, batch);
        }
        let horizon = now.after(early_by(Duration::MAX));
        let near: Vec<(BootInstant, u64)> = self
            .waiting
            .range(..=(horizon, u64::MAX))
            .copied()
            .collect();
        for (at, id) in near {
            if batch.due.len() == LARGEST_BATCH {
                break;
            }
            let Some(held) = self.held.get_mut(&id) else {
                continue;
            };
            let early = match held.backoff.is_fresh() {
                true => early_by(held.holding.ctx.heartbeat_interval()),
                false => Duration::ZERO,
            };
            if at > now.after(early) {
                continue;
            }
            self.waiting.remove(&(at, id));
            if held.holding.state.loss() == Some(Loss::Expired) {
                if let Some(held) = self.take_out(id) {
                    batch.expired.push(held.holding);
                }
                continue;
            }
            held.due_at = None;
            batch.due.push(Due {
                id,
                holding: held.holding.clone(),
                backoff: held.backoff,
            });
        }
        (self.batch, batch)
    }

    /// Puts a lease of the batch back, due at `at`; without effect when it was removed meanwhile.
    pub(crate) fn put_back(&mut self, id: u64, at: BootInstant, backoff: Backoff) {
        if let Some(held) = self.held.get_mut(&id) {
            held.due_at = Some(at);
            held.backoff = backoff;
            self.waiting.insert((at, id));
        }
    }

    /// Forgets a lease of the batch that is lost.
    pub(crate) fn forget(&mut self, id: u64) {
        self.take_out(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::lease::{LeaseTerm, LeaseTiming};

    fn holding(sent: BootInstant) -> Holding {
        holding_for(SECOND * 60, sent)
    }

    fn holding_for(ttl: Duration, sent: BootInstant) -> Holding {
        let ctx = LockContext::builder("postgresql://app@db/app", "k")
            .ttl(ttl)
            .build_with(&|_| None)
            .unwrap();
        let timing = LeaseTiming {
            ttl,
            interval: ctx.heartbeat_interval(),
            kill_grace: Duration::from_secs(10),
        };
        Holding {
            state: Arc::new(LeaseState::new(
                "k",
                "v".into(),
                LeaseTerm::begin(timing, sent),
            )),
            ctx,
        }
    }

    fn ids(batch: &Batch) -> Vec<u64> {
        batch.due.iter().map(|due| due.id).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn leases_are_due_after_their_interval_and_those_almost_due_come_along() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        let first = holdings.add(holding(now));
        let second = holdings.add(holding(now.after(SECOND)));
        let third = holdings.add(holding(now.after(SECOND * 5)));
        assert!(holdings.take_due(now.after(SECOND * 9)).1.due.is_empty());
        let due_at = now.after(SECOND * 10);
        assert_eq!(holdings.next_due(), Some(due_at));
        let (_, batch) = holdings.take_due(due_at);
        assert_eq!(ids(&batch), [first, second]);
        assert_eq!(holdings.next_due(), Some(now.after(SECOND * 15)));
        assert_eq!(holdings.remove(third), None);
        assert_eq!(holdings.next_due(), None, "both are in the batch");
    }

    #[test]
    fn lease_that_is_removed_while_its_batch_is_under_way_is_not_put_back() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        let id = holdings.add(holding(now));
        let due_at = now.after(SECOND * 10);
        let (number, _) = holdings.take_due(due_at);
        assert_eq!(holdings.remove(id), Some(number));
        holdings.put_back(id, due_at, Backoff::default());
        assert!(holdings.is_empty());
        assert_eq!(holdings.next_due(), None);
    }

    #[test]
    fn locked_lease_is_not_tried_before_its_pause_is_over() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        let locked = holdings.add(holding(now));
        let other = holdings.add(holding(now.after(SECOND)));
        let due_at = now.after(SECOND * 10);
        let _ = holdings.take_due(due_at);
        let mut backoff = Backoff::default();
        let pause = backoff.pause(SECOND, 0.0).unwrap();
        holdings.put_back(other, due_at, Backoff::default());
        holdings.put_back(locked, due_at.after(pause), backoff);
        assert_eq!(ids(&holdings.take_due(due_at).1), [other]);
        assert_eq!(ids(&holdings.take_due(due_at.after(pause)).1), [locked]);
    }

    #[test]
    fn lease_that_ran_out_is_not_renewed() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        holdings.add(holding(now.before(SECOND * 60)));
        let (_, batch) = holdings.take_due(now);
        assert_eq!((batch.due.len(), batch.expired.len()), (0, 1));
        assert!(holdings.is_empty());
    }

    #[test]
    fn shortest_ttl_is_that_of_a_lease_that_is_held() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        assert_eq!(holdings.shortest_ttl(), None);
        holdings.add(holding(now));
        let short = [(); 3].map(|()| holdings.add(holding_for(SECOND * 9, now)));
        let ran_out = holdings.add(holding_for(SECOND * 5, now.before(SECOND * 5)));
        assert_eq!(holdings.shortest_ttl(), Some(SECOND * 5));
        let (_, batch) = holdings.take_due(now);
        assert_eq!((ids(&batch), batch.expired.len()), (vec![], 1));
        assert_eq!(holdings.remove(ran_out), None);
        assert_eq!(holdings.shortest_ttl(), Some(SECOND * 9));
        holdings.remove(short[0]);
        let (_, batch) = holdings.take_due(now.after(SECOND * 4));
        assert_eq!(ids(&batch), short[1..]);
        assert_eq!(holdings.shortest_ttl(), Some(SECOND * 9), "in the batch");
        holdings.forget(short[1]);
        holdings.put_back(short[2], now.after(SECOND * 8), Backoff::default());
        assert_eq!(holdings.shortest_ttl(), Some(SECOND * 9));
        holdings.remove(short[2]);
        assert_eq!(holdings.shortest_ttl(), Some(SECOND * 60));
    }

    #[test]
    fn one_batch_is_never_large() {
        let now = BootInstant::now();
        let mut holdings = Holdings::default();
        let one = holding(now);
        for _ in 0..LARGEST_BATCH + 1 {
            holdings.add(one.clone());
        }
        let due_at = now.after(SECOND * 10);
        assert_eq!(holdings.take_due(due_at).1.due.len(), LARGEST_BATCH);
        assert_eq!(holdings.take_due(due_at).1.due.len(), 1);
    }
}
