//! A heap on huge pages, in a process of its own: the choice is the whole process's.

/// How many KiB of this process lie on huge pages.
fn on_huge_pages() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Blocks come from the prepared heap, and hold the written data.
#[test]
#[cfg(target_env = "gnu")]
fn blocks_lie_on_huge_pages() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if on_huge_pages().is_none() || !enabled.is_ok_and(|enabled| !enabled.contains("[never]")) {
        eprintln!("SKIPPED: this kernel has no transparent huge pages");
        return;
    }
    live::sys::huge_pages::prepare(400, 128 << 10);
    let blocks: Vec<_> = (0..200_u8).map(|byte| (byte, vec![byte; 132 << 10])).collect();
    assert!(blocks.iter().all(|(byte, block)| block.iter().all(|written| written == byte)));
    assert!(on_huge_pages() > Some(0));
}
