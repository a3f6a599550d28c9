//! The `dislock` program: everything it does is in the library.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    dislock::cli::main()
}

#[cfg(not(target_os = "linux"))]
compile_error!("the dislock program supervises processes in ways that only Linux offers");
