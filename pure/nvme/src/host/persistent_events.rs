//! The Persistent Event log, as a host reads it.

use crate::wire::log::{PersistentEventHeader, PersistentEventLogHeader};

/// Length in bytes of an event's header up to and including the field with the header's length.
const TO_HEADER_LENGTH: usize = 3;

/// The events in a Persistent Event log (page 0Dh) with their data, as far as the log contains
/// them. An event whose header is shorter than that of NVMe 2.0 ends the list.
pub fn persistent_events(log: &[u8]) -> impl Iterator<Item = (PersistentEventHeader, &[u8])> {
    let (count, mut rest) = match log.split_first_chunk() {
        Some((header, rest)) => (PersistentEventLogHeader::parse(header).events, rest),
        None => (0, &[][..]),
    };
    (0..count).map_while(move |_| {
        let header = PersistentEventHeader::parse(rest.first_chunk()?);
        let start = usize::from(header.header_length) + TO_HEADER_LENGTH;
        if start < PersistentEventHeader::LENGTH {
            return None;
        }
        let (data, after) = rest.get(start..)?.split_at_checked(header.length.into())?;
        rest = after;
        Some((header, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::log::PersistentEventKind;
    use std::vec::Vec;

    fn log() -> Vec<u8> {
        let mut log = std::vec![0; PersistentEventLogHeader::LENGTH];
        log[4] = 2;
        for (kind, data) in [(3, &[1, 2, 3, 4][..]), (0xde, &[])] {
            let length = u16::try_from(data.len()).unwrap();
            let header =
                PersistentEventHeader { kind, header_length: 21, length, ..PersistentEventHeader::default() };
            let mut bytes = [0; PersistentEventHeader::LENGTH];
            header.emit(&mut bytes);
            log.extend(bytes);
            log.extend(data);
        }
        log
    }

    #[test]
    fn events_are_read_one_by_one() {
        let log = log();
        let events: Vec<_> = persistent_events(&log)
            .map(|(event, data)| (PersistentEventKind::from(event.kind), data))
            .collect();
        assert_eq!(
            events,
            [(PersistentEventKind::Timestamp, &[1, 2, 3, 4][..]), (PersistentEventKind::VendorSpecific, &[])]
        );
    }

    #[test]
    fn a_truncated_or_invalid_log_yields_its_valid_events() {
        let mut log = log();
        for length in 0..log.len() {
            assert!(persistent_events(&log[..length]).count() < 2);
        }
        log[4..8].fill(0xff);
        assert_eq!(persistent_events(&log).count(), 2, "the log ends before its count does");
        log[PersistentEventLogHeader::LENGTH + 2] = 0;
        assert_eq!(persistent_events(&log).count(), 0, "no header is that short");
    }
}
