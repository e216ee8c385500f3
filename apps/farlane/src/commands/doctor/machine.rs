//! Where the facts about a machine are: files of `/proc`, `/sys` and `/dev`, and a few questions to
//! the kernel.

use std::fs;
use std::path::PathBuf;

use live::sys::machine;

/// A machine, or a folder that stands for one in tests.
pub(super) struct Machine {
    /// The folder that stands for `/`.
    root: PathBuf,
    /// Why io_uring can't be used, if so.
    pub(super) no_ring: Option<String>,
    /// Bytes of memory that may be locked; none without a limit.
    pub(super) locked_max: Option<u64>,
    /// Descriptors that a process may have; none without a limit.
    pub(super) descriptors_max: Option<u64>,
}

impl Machine {
    /// This machine.
    pub(super) fn here() -> Self {
        Self {
            root: PathBuf::from("/"),
            no_ring: machine::io_uring().err().map(|error| error.to_string()),
            locked_max: machine::locked_bytes_max(),
            descriptors_max: machine::descriptors_max(),
        }
    }

    /// The machine whose files are in `root`, and which allows all that is asked of the kernel.
    #[cfg(test)]
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root, no_ring: None, locked_max: None, descriptors_max: None }
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without white space around it; none if it can't be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.place(path)).ok()?.trim().to_owned())
    }

    /// The last number in the text of a file: that of `tcp_rmem` is the largest.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.split_whitespace().next_back()?.parse().ok()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// Whether this user may read and write a file.
    pub(super) fn may_open(&self, path: &str) -> bool {
        fs::File::options().read(true).write(true).open(self.place(path)).is_ok()
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Where a symbolic link leads, by its last name; none if it is no link.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.place(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Whether this process has a capability, by its number in `capabilities(7)`.
    pub(super) fn has_capability(&self, number: u32) -> bool {
        let status = self.text("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        effective.is_some_and(|effective| effective >> number & 1 == 1)
    }

    /// A figure of `/proc/meminfo`.
    pub(super) fn memory(&self, name: &str) -> Option<u64> {
        let text = self.text("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    }
}
