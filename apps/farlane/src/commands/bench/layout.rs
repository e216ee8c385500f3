//! Which parts of the namespace jobs use that run at the same time.
//!
//! All jobs have the same namespace. Where fio would give each a file of its own, jobs that only
//! read may share it. A job that checks its own writes, and another job that overwrites them, get
//! separate parts.

use super::Planned;
use super::job::set_bytes;
use crate::args::Amount;
use crate::workload::Job;

/// Whether one of two jobs would overwrite blocks that the other one checks.
fn disturb(one: &Job, other: &Job) -> bool {
    let ((start, length), (from, bytes)) = (one.area(), other.area());
    let overlap = start < from.saturating_add(bytes) && from < start.saturating_add(length);
    // Two jobs that check the same chunks know each other's writes.
    let is_shared = one.check.is_some()
        && other.check.is_some()
        && (one.area(), one.chunk(), one.increment) == (other.area(), other.chunk(), other.increment);
    let writes_over = one.check.is_some() && other.has_writes() || other.check.is_some() && one.has_writes();
    overlap && writes_over && !is_shared
}

/// The names of two of `jobs` of which one would overwrite blocks that the other one checks.
fn disturbed<'a>(planned: &'a [Planned], jobs: &[Job]) -> Option<(&'a str, &'a str)> {
    let pairs = (0..jobs.len()).flat_map(|one| (one + 1..jobs.len()).map(move |other| (one, other)));
    let mut pairs = pairs.filter(|(one, other)| disturb(&jobs[*one], &jobs[*other]));
    pairs.next().map(|(one, other)| (planned[one].name(), planned[other].name()))
}

/// Gives jobs of one phase that write or check parts of their own, if they would disturb each
/// other. Returns the parts in words.
///
/// # Errors
/// When that is not possible.
pub(super) fn separate(planned: &[Planned], jobs: &mut [Job]) -> Result<Vec<String>, String> {
    if disturbed(planned, jobs).is_none() {
        return Ok(Vec::new());
    }
    let is_moved = |at: usize, job: &Job| {
        let load = &planned[at].args.load;
        let is_free = (load.offset, load.offset_increment) == (Amount::Bytes(0), Amount::Bytes(0));
        is_free && (job.has_writes() || job.check.is_some())
    };
    let moved: Vec<usize> = (0..jobs.len()).filter(|at| is_moved(*at, &jobs[*at])).collect();
    if let Some(first) = jobs.first() {
        let size = first.namespace.blocks * u64::from(first.namespace.block_bytes);
        let given = moved.iter().filter_map(|at| jobs[*at].range).fold(0, u64::saturating_add);
        let open = moved.iter().filter(|at| jobs[**at].range.is_none()).count() as u64;
        let share = size.saturating_sub(given) / open.max(1);
        if given > size || open > 0 && share == 0 {
            return Err(format!(
                "jobs that verify their writes need parts of their own: {given} bytes in all, and the \
                 namespace has {size}; a smaller size= makes room"
            ));
        }
        let mut start = 0;
        for at in &moved {
            let unit = u64::from(jobs[*at].namespace.block_bytes).max(jobs[*at].chunk().into());
            let length = jobs[*at].range.unwrap_or(share - share % unit);
            (jobs[*at].offset, jobs[*at].range) = (start, Some(length));
            set_bytes(&mut jobs[*at], &planned[*at].args);
            start += length;
        }
    }
    if let Some((one, other)) = disturbed(planned, jobs) {
        return Err(format!(
            "[{one}] and [{other}] write to the same part of the namespace at the same time, and one verifies its writes; expected another offset= or size=, or stonewall"
        ));
    }
    let one = |at: &usize| {
        let (start, length) = jobs[*at].area();
        format!("[{}] uses bytes {start} to {}", planned[*at].name(), start + length)
    };
    Ok(moved.iter().map(one).collect())
}
