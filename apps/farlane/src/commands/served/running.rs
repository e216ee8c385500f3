//! The namespaces of a running offer: the effect of requests and of a reload on them, the same for
//! far ends and for a target.

use serde_json::Value;

use crate::args::Backing;

/// An offer that runs. It consists of places, each with namespaces: far ends, or subsystems.
pub(crate) trait Running {
    /// The command that may make a namespace shorter.
    const RESIZES: &'static str;

    /// The name of a place, for people and in answers.
    fn name(&self, index: usize) -> String;
    /// The NVMe Qualified Name of a place, for the fields of a log line.
    fn nqn(&self, index: usize) -> Option<&str>;
    /// The namespaces of a place that were given by themselves, and those added since.
    fn listed(&mut self, index: usize) -> impl Iterator<Item = (u32, &mut Backing)>;
    /// Takes a namespace from the list of its place.
    fn unlist(&mut self, index: usize, nsid: u32);
    /// The bytes of a namespace, if it is there.
    fn bytes_of(&mut self, index: usize, nsid: u32) -> Result<Option<u64>, String>;
    /// Removes a namespace from its place, but not from the list.
    fn remove_namespace(&mut self, index: usize, nsid: u32) -> Result<(), String>;
    /// Makes a namespace `size` bytes long or, without `size`, as long as its file is by now.
    /// Returns its length in bytes.
    fn resize_namespace(&mut self, index: usize, nsid: u32, size: Option<u64>) -> Result<u64, String>;

    /// The answer to a request that has added or removed a namespace.
    ///
    /// # Errors
    /// When the answer can't be written as JSON.
    fn changed(&self, index: usize, nsid: u32) -> Result<Value, String>;

    /// The answer to a request that has given a namespace `bytes` bytes.
    ///
    /// # Errors
    /// When the answer can't be written as JSON.
    fn resized(&self, index: usize, nsid: u32, bytes: u64) -> Result<Value, String>;

    /// Logs that a namespace was added, and returns the answer to the request.
    ///
    /// # Errors
    /// As of [`Running::changed`].
    fn added(&self, index: usize, nsid: u32) -> Result<Value, String> {
        info!(nqn = self.nqn(index), nsid, "{} has namespace {nsid}", self.name(index));
        self.changed(index, nsid)
    }

    /// Removes a namespace on request.
    ///
    /// # Errors
    /// As of [`Running::remove_namespace`] and [`Running::changed`].
    fn remove(&mut self, index: usize, nsid: u32) -> Result<Value, String> {
        self.remove_namespace(index, nsid)?;
        self.unlist(index, nsid);
        info!(nqn = self.nqn(index), nsid, "{} has namespace {nsid} no more", self.name(index));
        self.changed(index, nsid)
    }

    /// Resizes a namespace on request.
    ///
    /// # Errors
    /// As of [`Running::resize_namespace`] and [`Running::resized`].
    fn resize(&mut self, index: usize, nsid: u32, size: Option<u64>) -> Result<Value, String> {
        let bytes = self.resize_namespace(index, nsid, size)?;
        // A reload compares the file with these sizes.
        for (_, backing) in self.listed(index).filter(|(id, _)| *id == nsid) {
            backing.set_size(bytes);
        }
        let name = self.name(index);
        info!(nqn = self.nqn(index), nsid, bytes, "namespace {nsid} of {name} has {bytes} B");
        self.resized(index, nsid, bytes)
    }

    /// Gives a namespace the size that a reload has found, and adds a line to `changes` if that
    /// changes anything. Refuses to make the namespace shorter, which would lose data. Returns
    /// whether the namespace has this size.
    fn grow(&mut self, index: usize, nsid: u32, size: Option<u64>, changes: &mut Vec<String>) -> bool {
        let name = self.name(index);
        let grown = self.bytes_of(index, nsid).and_then(|before| {
            if size.is_some_and(|size| before.is_some_and(|before| size < before)) {
                return Err(format!("a reload makes nothing shorter; {} does", Self::RESIZES));
            }
            Ok((before, self.resize_namespace(index, nsid, size)?))
        });
        match grown {
            Ok((before, bytes)) if before == Some(bytes) => true,
            Ok((_, bytes)) => {
                changes.push(format!("{name}: namespace {nsid} has {bytes} B"));
                true
            }
            Err(error) => {
                changes.push(format!("{name}: namespace {nsid} keeps its size: {error}"));
                false
            }
        }
    }
}
