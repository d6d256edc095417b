//! Tables of measurements: each is below a line that says where its values come from.

use std::path::Path;

const PAGE: &str = "docs/MEASUREMENTS.md";
/// Command, commit, machine and date.
const ORIGIN_PARTS: usize = 4;

/// Tables of the page without such a line between their heading and them.
pub fn table_faults() -> Vec<String> {
    faults(&std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap())
}

fn faults(page: &str) -> Vec<String> {
    let (mut has_origin, mut faults) = (false, Vec::new());
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with('#') {
            has_origin = false;
        }
        has_origin |= line.split(" · ").filter(|part| !part.trim().is_empty()).count() == ORIGIN_PARTS;
        if line.starts_with("|---") && !has_origin {
            faults.push(format!("{PAGE}:{number}: no line with command, commit, machine and date above the table"));
        }
    }
    faults
}

#[test]
fn tables_of_unknown_origin_are_found() {
    let table = "| a |\n|---|\n| 1 |\n";
    assert_eq!(faults(&format!("# A\n\n`fhrd bench x` · abc · 2 cores · today\n\n{table}")), [""; 0]);
    assert_eq!(faults(&format!("# A\n\n`fhrd bench x` · abc · 2 cores\n\n{table}")).len(), 1);
    assert_eq!(faults(&format!("# A\n`x` · a · b · c\n{table}\n# B\n{table}")).len(), 1);
}
