//! The figures of every process: its version, memory and processor time.

use super::page::{Kind, Labels, Page};

/// Adds the figures of this process, as far as the system reports them.
pub(super) fn add(page: &mut Page) {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    page.family(Kind::Gauge, "farlane_build", "1, with the version as label").add(&version, 1.0);
    let processor = live::sys::usage::processor_time().as_secs_f64();
    let memory = live::sys::usage::resident_bytes()
        .map(|bytes| (Kind::Gauge, "process_resident_memory_bytes", "Memory in use", bytes as f64));
    let time = (Kind::Counter, "process_cpu_seconds", "Processor time, user and system", processor);
    page.add_rows(&Labels::new(), std::iter::once(time).chain(memory));
}
