//! A program, its arguments and its environment, laid out for `execve`.

use std::ffi::CStr;
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, c_char};

use super::{MappedVec, SysResult};

const SHELL: &CStr = c"/bin/sh";

/// What `execve` takes, built from one block of strings.
pub(in crate::command) struct Image {
    /// NUL-terminated strings: the program's path, the arguments, the environment. What the pointers
    /// below point into; it is neither changed nor moved once they are there.
    strings: MappedVec<u8>,
    /// The shell, the arguments, null. The program gets it from the second item on; as a shell
    /// script, all of it with its own path in the second place.
    argv: MappedVec<*const c_char>,
    /// The environment, null.
    environment: MappedVec<*const c_char>,
}

impl Image {
    /// `strings` holds the path, then `args` arguments (at least one), then the environment.
    pub(in crate::command) fn new(strings: MappedVec<u8>, args: usize) -> SysResult<Self> {
        let mut argv = MappedVec::new()?;
        let mut environment = MappedVec::new()?;
        argv.push(SHELL.as_ptr())?;
        let all = strings.as_slice();
        if args == 0 || all.last() != Some(&0) {
            return Err(Errno::EINVAL);
        }
        let mut index = 0_usize;
        let mut rest = all;
        while let Ok(string) = CStr::from_bytes_until_nul(rest) {
            match index {
                0 => {}
                n if n <= args => argv.push(string.as_ptr())?,
                _ => environment.push(string.as_ptr())?,
            }
            index = index.saturating_add(1);
            rest = rest
                .get(string.count_bytes().saturating_add(1)..)
                .unwrap_or_default();
        }
        if index <= args {
            return Err(Errno::EINVAL);
        }
        argv.push(ptr::null())?;
        environment.push(ptr::null())?;
        Ok(Self {
            strings,
            argv,
            environment,
        })
    }

    /// Becomes the program; comes back only with the reason why not.
    pub(in crate::command) fn exec(&self) -> Errno {
        self.exec_from(self.strings.as_slice().as_ptr().cast(), 1)
    }

    /// Becomes the shell that reads the program's file, as `execvp` does with a file that the kernel
    /// does not take for a program.
    pub(in crate::command) fn exec_by_shell(&mut self) -> Errno {
        let path = self.strings.as_slice().as_ptr().cast();
        if let Some(program) = self.argv.as_mut_slice().get_mut(1) {
            *program = path;
        }
        self.exec_from(SHELL.as_ptr(), 0)
    }

    fn exec_from(&self, path: *const c_char, first_arg: usize) -> Errno {
        let Some(argv) = self.argv.as_slice().get(first_arg..) else {
            return Errno::EINVAL;
        };
        // SAFETY: `path` is NUL-terminated; both arrays end with a null pointer, and everything
        // before it points at a NUL-terminated string in `strings` or at SHELL, all of which live as
        // long as `self`.
        unsafe { libc::execve(path, argv.as_ptr(), self.environment.as_slice().as_ptr()) };
        Errno::last()
    }
}
