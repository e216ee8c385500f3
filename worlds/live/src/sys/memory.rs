//! How much memory there is, and how much of it to use for others.

/// A serving process holds one of this many parts of the memory for others, unless told otherwise.
const PARTS: u64 = 8;
/// The least and the most bytes that are held.
const BUDGET_MIN: u64 = 64 << 20;
const BUDGET_MAX: u64 = 4 << 30;

/// How many bytes a serving process may hold for others by default: an eighth of the memory
/// available to it, at least 64 MiB and at most 4 GiB.
pub fn budget_default() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    budget_of(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"))
}

/// Computes [`budget_default`] from what the system tells about itself, and about the control group
/// (cgroup) of this process.
fn budget_of(machine: &str, group: &str) -> u64 {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|line| line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok());
    let machine = kibibytes.map(|kibibytes| kibibytes.saturating_mul(1024));
    let memory = machine.into_iter().chain(group.trim().parse().ok()).min();
    memory.map_or(BUDGET_MIN, |bytes| (bytes / PARTS).clamp(BUDGET_MIN, BUDGET_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_what_there_is_counts() {
        let machine = |gibibytes: u64| format!("MemTotal:  {} kB\nMemFree: 1 kB\n", gibibytes << 20);
        assert_eq!(budget_of(&machine(8), "max\n"), 1 << 30);
        assert_eq!(budget_of(&machine(8), "4294967296\n"), 512 << 20);
        assert_eq!(budget_of(&machine(1024), ""), BUDGET_MAX);
        assert_eq!(budget_of("MemTotal: much", "max"), BUDGET_MIN);
        assert!((BUDGET_MIN..=BUDGET_MAX).contains(&budget_default()));
    }
}
