//! Entry points of the fuzz targets: no input may cause a panic.

mod authentication;
mod host;
mod tls;

use nvme::wire::SubmissionQueueEntry;

use crate::wire::{ConnectData, DiscoveryEntry, DiscoveryHeader, FabricsCommand};

pub use authentication::authentication;
pub use host::host;
pub use tls::tls;

/// Parses fabrics commands, the data of Connect, and the Discovery log. Every parsed value must
/// parse to the same value after it is emitted.
pub fn structures(bytes: &[u8]) {
    if let Some((entry, data)) = bytes.split_first_chunk::<64>() {
        if let Ok(command) = FabricsCommand::parse(&SubmissionQueueEntry::parse(entry)) {
            assert_eq!(FabricsCommand::parse(&command.emit()), Ok(command));
        }
        if let Ok(data) = ConnectData::parse(data) {
            assert_eq!(ConnectData::parse(&data.emit()), Ok(data));
        }
    }
    if let Some((page, _)) = bytes.split_first_chunk::<1024>() {
        if let Ok(header) = DiscoveryHeader::parse(page) {
            assert_eq!(DiscoveryHeader::parse(&header.emit()), Ok(header));
        }
        if let Ok(entry) = DiscoveryEntry::parse(page) {
            assert_eq!(DiscoveryEntry::parse(&entry.emit()), Ok(entry));
        }
    }
}
