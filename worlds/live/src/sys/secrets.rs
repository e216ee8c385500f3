//! Secrets in the memory of this process.

use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

/// Keeps the memory of this process out of core dumps and from debuggers of the same user, from now
/// on. To be called before the process has a secret.
pub fn keep_from_dumps() {
    // A kernel that refuses has no such attribute, and then no way to keep secrets in.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Whether this process keeps its memory to itself, since [`keep_from_dumps`].
pub(crate) fn are_kept() -> bool {
    dumpable_behavior() == Ok(DumpableBehavior::NotDumpable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_secrets_leaves_no_dump() {
        keep_from_dumps();
        assert!(are_kept());
    }
}
