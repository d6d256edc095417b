//! The program `fhrd-bench`, which `fhrd bench` runs.

fn main() -> std::process::ExitCode {
    fhrd_bench::command::main()
}
