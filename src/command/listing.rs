//! All processes at one time, and which of them belong to a tree.
//!
//! `/proc` is read process by process, so a listing may join what never was there together: a process
//! whose parent has just died, and another that was given the parent's number meanwhile. Nobody has a
//! parent that started later, so such a pair is told by that.
//!
//! Runs in the guardian too: see the rules at the top of `kernel`.

use nix::errno::Errno;

use super::kernel::MappedVec;
use super::processes::{Proc, Process};

/// What belongs to a tree.
pub(super) struct Bounds {
    pub(super) scope: Scope,
    /// Children of the root that do not, with all below them; sorted.
    strangers: MappedVec<i32>,
    /// What started before that does not either.
    pub(super) since: u64,
}

/// Where the tree is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// Below this process.
    Below(i32),
    /// In this process group: what is left to go by when the root is dead.
    Group(i32),
}

impl Bounds {
    pub(super) fn new(scope: Scope) -> Result<Self, Errno> {
        Ok(Self {
            scope,
            strangers: MappedVec::new()?,
            since: 0,
        })
    }

    pub(super) fn leave_out(&mut self, strangers: &[i32]) {
        for &stranger in strangers {
            // Without memory for it there is none for the listing either, and nobody is signalled.
            let _ = self.strangers.push(stranger);
        }
        self.strangers.as_mut_slice().sort_unstable();
    }

    /// Whether what was a member of a listing, and was looked at once more, is the same process and
    /// must still be a member. Its parent may have ended meanwhile: then the root has adopted it. After
    /// any other change it is for the next listing to tell.
    pub(super) fn still_hold(&self, listed: Process, now: Process) -> bool {
        listed.started == now.started
            && match self.scope {
                Scope::Below(root) => now.parent == listed.parent || now.parent == root,
                Scope::Group(group) => now.group == group,
            }
    }
}

/// All processes, by number.
pub(super) struct Listing {
    since: u64,
    all: MappedVec<Listed>,
}

#[derive(Clone, Copy)]
pub(super) struct Listed {
    process: Process,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// On the way that is being followed up.
    Asked,
    /// Below the root, with so many members above it.
    Inside(u32),
    Outside,
}

impl Listing {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            since: 0,
            all: MappedVec::new()?,
        })
    }

    /// Takes a new listing.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub(super) fn take(&mut self, proc: &Proc, bounds: &Bounds) -> Result<(), Errno> {
        self.all.clear();
        self.since = bounds.since;
        let mut sorted = true;
        let mut last = 0;
        proc.for_each(|process| {
            sorted &= last < process.pid;
            last = process.pid;
            // Without memory the rest is left for the next one.
            let _ = self.all.push(Listed::from(process));
        })?;
        let all = self.all.as_mut_slice();
        if !sorted {
            all.sort_unstable_by_key(|l| l.process.pid);
        }
        match bounds.scope {
            Scope::Below(root) => settle(all, root, bounds.strangers.as_slice()),
            Scope::Group(group) => {
                for listed in all {
                    if listed.process.group == group {
                        listed.standing = Standing::Inside(0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Those of the tree that are alive, by number, each with the number of members above it.
    pub(super) fn members(&self) -> impl Iterator<Item = (Process, u32)> {
        members(self.all.as_slice()).filter(|(p, _)| !p.dead && p.started >= self.since)
    }
}

impl From<Process> for Listed {
    fn from(process: Process) -> Self {
        Self {
            process,
            standing: Standing::Unknown,
        }
    }
}

pub(super) fn members(all: &[Listed]) -> impl Iterator<Item = (Process, u32)> {
    all.iter().filter_map(|listed| match listed.standing {
        Standing::Inside(above) => Some((listed.process, above)),
        Standing::Unknown | Standing::Asked | Standing::Outside => None,
    })
}

/// Finds out who is below the root and not below a stranger. The listing is sorted by number, the
/// strangers too.
///
/// Each process is asked for its parent but twice, however long the chains are.
pub(super) fn settle(all: &mut [Listed], root: i32, strangers: &[i32]) {
    for start in 0..all.len() {
        // Up, as far as nobody has come before.
        let mut at = Some(start);
        let mut steps: u32 = 0;
        let top = loop {
            let Some(listed) = at.and_then(|index| all.get_mut(index)) else {
                break None;
            };
            match listed.standing {
                Standing::Unknown => listed.standing = Standing::Asked,
                Standing::Inside(above) => break Some(above.saturating_add(1)),
                // Asked: a circle, the listing contradicts itself.
                Standing::Asked | Standing::Outside => break None,
            }
            steps = steps.saturating_add(1);
            let process = listed.process;
            if strangers.binary_search(&process.pid).is_ok() {
                break None;
            }
            if process.parent == root {
                break Some(0);
            }
            at = parent_of(all, process);
        };
        // The same way again, with the answer.
        let mut at = Some(start);
        while let Some(listed) = at.and_then(|index| all.get_mut(index)) {
            if listed.standing != Standing::Asked {
                break;
            }
            steps = steps.saturating_sub(1);
            listed.standing = match top {
                Some(above) => Standing::Inside(above.saturating_add(steps)),
                None => Standing::Outside,
            };
            let process = listed.process;
            at = parent_of(all, process);
        }
    }
}

fn parent_of(all: &[Listed], child: Process) -> Option<usize> {
    let index = all
        .binary_search_by_key(&child.parent, |l| l.process.pid)
        .ok()?;
    let parent = all.get(index)?.process;
    (parent.started <= child.started).then_some(index)
}
