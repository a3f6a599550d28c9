//! Memory straight from the kernel: a growing array, and a number that two processes share.

use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_int};

use super::{PAGE, SysResult};

/// Maps `len` bytes of zeroes.
fn map(len: usize, sharing: c_int) -> SysResult<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    NonNull::new(start.cast()).ok_or(Errno::ENOMEM)
}

/// A `Vec` that never meets the allocator.
pub(in crate::command) struct MappedVec<T: Copy> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
}

impl<T: Copy> MappedVec<T> {
    /// An empty array; one page until it grows.
    pub(in crate::command) fn new() -> SysResult<Self> {
        Ok(Self {
            start: map(PAGE, libc::MAP_PRIVATE)?.cast(),
            len: 0,
            bytes: PAGE,
        })
    }

    /// Makes room for `len` items in all.
    fn reserve(&mut self, len: usize) -> SysResult<()> {
        let wanted = len
            .checked_mul(size_of::<T>())
            .and_then(|n| n.checked_next_multiple_of(PAGE))
            .ok_or(Errno::ENOMEM)?;
        if wanted <= self.bytes {
            return Ok(());
        }
        let wanted = wanted.max(self.bytes.saturating_mul(2));
        // SAFETY: `start` and `bytes` are this array's own mapping, and no reference into it lives
        // across a call that takes `&mut self`.
        let moved = unsafe {
            libc::mremap(
                self.start.as_ptr().cast(),
                self.bytes,
                wanted,
                libc::MREMAP_MAYMOVE,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        self.start = NonNull::new(moved.cast()).ok_or(Errno::ENOMEM)?;
        self.bytes = wanted;
        Ok(())
    }

    pub(in crate::command) fn push(&mut self, item: T) -> SysResult<()> {
        self.reserve(self.len.saturating_add(1))?;
        // SAFETY: `reserve` made room for one item more than there are.
        unsafe { self.start.as_ptr().add(self.len).write(item) };
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    pub(in crate::command) fn clear(&mut self) {
        self.len = 0;
    }

    pub(in crate::command) fn as_slice(&self) -> &[T] {
        // SAFETY: `len` items were written, or are bytes that the kernel zeroed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(in crate::command) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl MappedVec<u8> {
    /// `len` zeroes.
    pub(in crate::command) fn zeroed(len: usize) -> SysResult<Self> {
        let mut all = Self::new()?;
        all.reserve(len)?;
        all.len = len;
        Ok(all)
    }
}

impl<T: Copy> Drop for MappedVec<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this array's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A number that a process and those it forks later all see.
pub(in crate::command) struct SharedNanos(NonNull<AtomicU64>);

// SAFETY: an atomic may be used from any thread, and the mapping stays until the value is dropped.
unsafe impl Send for SharedNanos {}
// SAFETY: as above.
unsafe impl Sync for SharedNanos {}

impl SharedNanos {
    pub(in crate::command) fn new(value: u64) -> SysResult<Self> {
        let shared = Self(map(PAGE, libc::MAP_SHARED)?.cast());
        shared.set(value);
        Ok(shared)
    }

    /// Sequentially consistent on both sides: one number stands for itself, nothing else is
    /// published through it, and it is rare enough for the strongest order to cost nothing.
    pub(in crate::command) fn set(&self, value: u64) {
        self.cell().store(value, Ordering::SeqCst);
    }

    pub(in crate::command) fn get(&self) -> u64 {
        self.cell().load(Ordering::SeqCst)
    }

    fn cell(&self) -> &AtomicU64 {
        // SAFETY: a page-aligned, zeroed mapping that lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedNanos {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}
