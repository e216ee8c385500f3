//! How much a capture has, and how much of it is understood.

/// Counts over a whole capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets seen.
    pub packets: u64,
    /// Payload bytes of these packets, from their headers.
    pub bytes: u64,
    /// Completions without success, except those of configuration requests.
    pub errors: u64,
    /// Completions of configuration requests without success: hosts look for functions that are not
    /// there, and for devices that are not ready.
    pub probes: u64,
    /// Completions whose request is not in the capture.
    pub orphans: u64,
    /// Requests whose last completion is not in the capture.
    pub unanswered: u64,
    /// Things that had no room in a table.
    pub dropped: u64,
    /// Memory requests of devices, and completions of these.
    pub of_devices: u64,
    /// How many of these belong to commands known from their entries.
    pub known: u64,
    /// How many of these belong to commands inferred from sizes and addresses.
    pub inferred: u64,
    /// Commands known from their entries.
    pub known_commands: u64,
    /// Commands inferred.
    pub inferred_commands: u64,
    /// Commands that were in progress when the capture or their controller's life ended, except
    /// those that wait for an event.
    pub unfinished: u64,
    /// Asynchronous Event Requests that waited then.
    pub waiting: u64,
    /// Completions of unknown commands: completed twice, or begun before the capture.
    pub unexpected: u64,
}
