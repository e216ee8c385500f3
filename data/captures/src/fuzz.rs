//! Entry points for fuzzing: any files.

use std::io::Cursor;
use std::path::Path;

use engine::Nanos;

use crate::lines::Lines;
use crate::reader::Reader;
use crate::reading::Reading;
use crate::rows::{Columns, Rows};

/// The name of a file that does not exist.
const NAME: &str = "fuzzed";

/// Checks each command of a reading that has ended: the times of its chain add up to its length.
fn check(mut reading: Reading) {
    reading.finish();
    while let Some(command) = reading.poll_command() {
        let sum = command.chain().iter().fold(Nanos::ZERO, |sum, (_, length)| sum + *length);
        assert_eq!(sum, command.length(), "{command:?}");
        assert!(command.latency() <= command.length(), "{command:?}");
    }
}

/// Reads `bytes` as a pcap or pcapng file, with the comments and statistics of its interfaces.
pub fn frames(bytes: &[u8]) {
    let Ok(mut reader) = Reader::of(Cursor::new(bytes.to_vec()), Path::new(NAME)) else { return };
    let (mut reading, mut numbers) = (Reading::default(), 0..);
    // An error ends the file; the part before it was read.
    let _ = reader.each_item(|item| {
        if let crate::Item::Frame(frame) = &item {
            assert_eq!(Some(frame.number), numbers.next());
            assert!(frame.place.offset < bytes.len() as u64, "{frame:?}");
        }
        reading.see_item(&item);
        true
    });
    check(reading);
}

/// Reads `bytes` as a hardware analyser's table: the description of its columns, and behind the end
/// of the first line the table.
pub fn table(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let columns = String::from_utf8_lossy(parts.next().unwrap_or_default()).parse::<Columns>();
    let (Ok(columns), Some(table)) = (columns, parts.next()) else { return };
    let mut rows = Rows::of(Lines::of(Cursor::new(table.to_vec()), Path::new(NAME)), &columns);
    let mut reading = Reading::default();
    while matches!(rows.read_on(|row| reading.see_row(&row)), Ok(true)) {}
    check(reading);
}

/// Reads `bytes` as the words of Linux's tracers.
pub fn words(bytes: &[u8]) {
    let mut lines = Lines::of(Cursor::new(bytes.to_vec()), Path::new(NAME));
    let mut reading = Reading::default();
    while let Ok(Some(line)) = lines.read_on() {
        reading.see_line(&line);
    }
    check(reading);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// A block of pcapng with few different types and lengths, and now and then a wrong one.
    fn block() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop::sample::select(vec![0x0a0d_0d0a_u32, 1, 2, 3, 5, 6, 77]);
        let body = prop::collection::vec(prop::sample::select(vec![0_u8, 1, 4, 8, 147, 0xff]), 0..60);
        (kinds, body, any::<bool>(), 0..20_u32).prop_map(|(kind, mut body, is_whole, wrong)| {
            if kind == 0x0a0d_0d0a && is_whole {
                body = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
            }
            body.resize(body.len().next_multiple_of(4), 0);
            let length = u32::try_from(body.len()).unwrap() + 12 + u32::from(wrong == 0) * 4;
            let length = length.to_le_bytes();
            [&kind.to_le_bytes()[..], &length, &body, &length].concat()
        })
    }

    /// A row with few different cells, so that packets meet.
    fn row() -> impl Strategy<Value = String> {
        let cells = vec!["", "0", "4", "0x1000", "MRd", "MWr", "CplD", "up", "1.5 us", "zz", "\"", "fff0"];
        prop::collection::vec(prop::sample::select(cells), 0..8).prop_map(|cells| cells.join(","))
    }

    /// A line as tracers write them, with few different identifiers and now and then another word.
    fn line() -> impl Strategy<Value = String> {
        let events = vec![
            "nvme_setup_cmd: nvme0: disk=nvme0n1, qid=1, cmdid=7, nsid=1, flags=0x0, meta=0x0, \
             cmd=(nvme_cmd_read slba=8, len=7, ctrl=0x0, dsmgmt=0, reftag=0)",
            "nvme_complete_rq: nvme0: disk=nvme0n1, qid=1, cmdid=7, res=0x0, retries=0, flags=0x0, status=0x0",
            "block_rq_issue: 259,0 R 4096 () 8 + 8 none,0,0 [fio]",
            "block_rq_complete: 259,0 R () 8 + 8 none,0,0 [0]",
            "",
        ];
        (prop::sample::select(events), 0..3_u32, any::<u8>()).prop_map(|(event, second, cut)| {
            let line = format!("  fio-12 [000] .... {second}.000001: {event}");
            let cut = if cut < 200 { line.len() } else { usize::from(cut) };
            line.chars().take(cut).collect()
        })
    }

    proptest! {
        #[test]
        fn any_blocks_are_read_or_refused(blocks in prop::collection::vec(block(), 0..40)) {
            let section = [0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
            let section = [&section[..], &[0xff; 8], &[28, 0, 0, 0]].concat();
            super::frames(&[section, blocks.concat()].concat());
        }

        #[test]
        fn any_rows_are_packets_or_counted(rows in prop::collection::vec(row(), 0..60)) {
            let table = format!("time=t,type=k,address=a,length=l,data=d,requester=r,tag=g\n\
                                 t,k,a,l,d,r,g\n{}", rows.join("\n"));
            super::table(table.as_bytes());
        }

        #[test]
        fn any_lines_are_events_or_counted(lines in prop::collection::vec(line(), 0..60)) {
            super::words(lines.join("\n").as_bytes());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            super::frames(&bytes);
            super::table(&[b"time=t,tlp=r\nt,r\n", &bytes[..]].concat());
            super::words(&bytes);
        }
    }
}
