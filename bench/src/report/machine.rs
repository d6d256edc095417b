//! Describes the machine that ran the measurement.

use fhrd::kernel::cpu_features::CpuFeatures;
use serde::{Deserialize, Serialize};

/// Properties of a machine that speeds depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Number of threads that run in parallel.
    pub processors: usize,
    /// Instruction sets that the kernels can use.
    pub cpu_features: Vec<String>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Operating system with its version.
    pub system: String,
}

impl Machine {
    /// The current machine.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let parts = [system.sysname(), system.release(), system.machine()];
        let pages =
            |name: &str| field("/proc/meminfo", name).and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Machine {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_features: CpuFeatures::used().labels().map(str::to_string).collect(),
            memory_bytes: pages("MemTotal").unwrap_or(0) << 10,
            system: parts.map(|part| part.to_string_lossy().into_owned()).join(" "),
        }
    }
}

/// The value of the first line `name: value` of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start().strip_prefix(':')?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_and_a_system() {
        let machine = Machine::here();
        assert!(machine.processors >= 1 && machine.system.split(' ').count() >= 3, "{machine:?}");
        #[cfg(target_os = "linux")]
        assert!(machine.memory_bytes > 1 << 20 && !machine.processor.is_empty(), "{machine:?}");
    }
}
