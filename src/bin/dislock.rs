//! The `dislock` program: everything it does is in the library.

fn main() -> std::process::ExitCode {
    dislock::cli::main()
}
