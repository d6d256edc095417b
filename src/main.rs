//! The `fhrd` command.

fn main() -> std::process::ExitCode {
    fhrd::cli::main()
}
