//! Metrics of every process: its version, memory and processor time.

use super::{Kind, Labels, Metrics, Page, seconds};

/// The resources that a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Processor time, user and system.
    pub processor_ns: u64,
    /// Memory in use, if the system reports it.
    pub resident_bytes: Option<u64>,
}

impl Metrics for Process {
    fn add_to(&self, page: &mut Page) {
        let version: Labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        page.add_gauges(&version, [("farlane_build", "1, with the version as label", 1.0)]);
        let none = Labels::new();
        let time = seconds(self.processor_ns);
        page.add(&none, [(Kind::Counter, "process_cpu_seconds", "Processor time, user and system", time)]);
        let memory = self.resident_bytes.map(super::count);
        page.add_gauges(&none, memory.map(|bytes| ("process_resident_memory_bytes", "Memory in use", bytes)));
    }
}
