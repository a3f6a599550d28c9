//! What a forked process forgets of the one that it is a copy of.

use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::read;

use super::SysResult;

/// Overwrites this process's copy of the environment it was started with, which may hold secrets, and
/// of its arguments, so that the process list shows `title` instead of a second copy of them.
///
/// Only for a process that reads neither any more. Does nothing where the kernel does not tell the
/// addresses.
pub(in crate::command) fn forget_environment(title: &[u8]) {
    let mut stat = [0_u8; 1024];
    let Ok(file) = open(
        c"/proc/self/stat",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    ) else {
        return;
    };
    let len = read(&file, &mut stat).unwrap_or(0);
    let Some([arg_start, arg_end, env_start, env_end]) = stat.get(..len).and_then(stack_strings)
    else {
        return;
    };
    // One area, arguments first, then environment; see proc_pid_stat(5).
    if arg_start == 0 || !(arg_start < arg_end && arg_end <= env_start && env_start <= env_end) {
        return;
    }
    // SAFETY: the kernel says that these strings are there, on the writable part of the first stack;
    // nobody else in this process (one thread, about to do nothing but system calls) looks at them.
    unsafe {
        let start = ptr::with_exposed_provenance_mut::<u8>(arg_start);
        ptr::write_bytes(start, 0, arg_end - arg_start);
        let room = (arg_end - arg_start).saturating_sub(1);
        ptr::copy_nonoverlapping(title.as_ptr(), start, title.len().min(room));
        let start = ptr::with_exposed_provenance_mut::<u8>(env_start);
        ptr::write_bytes(start, 0, env_end - env_start);
    }
}

/// Fields 48 to 51 of `/proc/self/stat`.
fn stack_strings(stat: &[u8]) -> Option<[usize; 4]> {
    let after_name = stat.iter().rposition(|&b| b == b')')?;
    let mut fields = stat
        .get(after_name.checked_add(2)?..)?
        .split(|&b| b == b' ')
        .skip(48 - 3)
        .map(|field| {
            let text = std::str::from_utf8(field.trim_ascii()).ok()?;
            text.parse().ok()
        });
    Some([
        fields.next()??,
        fields.next()??,
        fields.next()??,
        fields.next()??,
    ])
}

/// Gives back the memory that was inherited and that a process has no use for which does nothing but
/// system calls: the heap, and other threads' stacks.
///
/// Otherwise this process would keep a copy of every page that its parent writes to later, which can
/// be gigabytes, with all the secrets in them. Nothing is unmapped; it reads as zeroes from here on.
///
/// Only for a process with one thread, before it has mapped memory of its own that is not shared.
pub(in crate::command) fn forget_memory() {
    // What is kept: the stack, and where this thread's `errno` is with everything else that libc
    // knows about it. The data of the program and its libraries follows their files' mappings.
    let on_the_stack = 0_u8;
    let keep = [
        ptr::from_ref(&on_the_stack).addr(),
        // SAFETY: answers an address.
        unsafe { libc::__errno_location() }.addr(),
    ];
    let mut previous = Mapping::default();
    let _ = for_each_mapping(|mapping| {
        let data = mapping.start == previous.end && (previous.is_file || previous.is_data);
        let mapping = Mapping {
            is_data: data && !mapping.is_file && !mapping.is_heap,
            ..mapping
        };
        let needed = keep
            .iter()
            .any(|address| (mapping.start..mapping.end).contains(address));
        if mapping.is_private_and_writable && !mapping.is_file && !mapping.is_data && !needed {
            let start = ptr::with_exposed_provenance_mut(mapping.start);
            // SAFETY: all that is used from here on was excluded above, and new memory comes from
            // mmap.
            unsafe { libc::madvise(start, mapping.end - mapping.start, libc::MADV_DONTNEED) };
        }
        previous = mapping;
    });
}

/// A line of `/proc/self/maps`.
#[derive(Clone, Copy, Default)]
struct Mapping {
    start: usize,
    end: usize,
    is_private_and_writable: bool,
    is_file: bool,
    is_heap: bool,
    /// The part of a program's data that is all zeroes at first and so in no file.
    is_data: bool,
}

impl Mapping {
    /// `start-end perms offset device inode path`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&b| b == b' ').filter(|f| !f.is_empty());
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let permissions = fields.next()?;
        let inode = fields.nth(2)?;
        let is_file = inode != b"0";
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            is_private_and_writable: permissions.starts_with(b"rw") && permissions.ends_with(b"p"),
            is_file,
            is_heap: fields.next() == Some(b"[heap]"),
            is_data: false,
        })
    }
}

fn for_each_mapping(mut each: impl FnMut(Mapping)) -> SysResult<()> {
    let maps = open(
        c"/proc/self/maps",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = [0_u8; 8192];
    let mut filled = 0_usize;
    loop {
        let free = buffer.get_mut(filled..).unwrap_or_default();
        // A line that does not fit ends it as well: less is forgotten then.
        let len = read(&maps, free)?;
        if len == 0 {
            return Ok(());
        }
        filled = filled.saturating_add(len).min(buffer.len());
        let mut done = 0_usize;
        let lines = buffer.get(..filled).unwrap_or_default();
        for line in lines.split_inclusive(|&b| b == b'\n') {
            if let Some(line) = line.strip_suffix(b"\n") {
                each(Mapping::parse(line).ok_or(Errno::EINVAL)?);
                done = done.saturating_add(line.len()).saturating_add(1);
            }
        }
        buffer.copy_within(done..filled, 0);
        filled = filled.saturating_sub(done);
    }
}
