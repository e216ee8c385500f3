//! Captures of only an SSD's data are analysed as commands whose number, direction and size are
//! those of the files' names.

use std::path::Path;

use engine::Instant;
use farlane_trace::{Analyser, Command, Direction, Kind, Seen};
use pcie::wire::Head;

/// The frames of a pcap file of Ethernet frames, with their times in nanoseconds.
fn frames(file: &[u8]) -> Vec<(u64, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let scale = if word(0) == 0xa1b2_3c4d { 1 } else { 1000 };
    let (mut frames, mut at) = (Vec::new(), 24);
    while at < file.len() {
        let length = word(at + 8) as usize;
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * scale;
        frames.push((time, &file[at + 16..at + 16 + length]));
        at += 16 + length;
    }
    frames
}

/// The commands of a capture by NetTLP, and the share of the device's packets that fit them.
fn commands(file: &[u8]) -> (Vec<Command>, f64) {
    let mut analyser = Analyser::new();
    for (number, (time, frame)) in (0..).zip(frames(file)) {
        let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let ip = if half(12) == 0x8100 { 18 } else { 14 };
        let tlp = &frame[ip + usize::from(frame[ip] & 15) * 4 + 8 + 6..];
        let head = Head::parse(tlp).expect("a TLP");
        let direction = Direction::guess(&head.header);
        let payload = &tlp[head.encoded_len()..];
        let at = Instant::from_nanos(time);
        analyser.see(&Seen { number, at, direction, header: &head.header, payload });
    }
    analyser.finish();
    let statistics = analyser.statistics();
    let share = statistics.inferred as f64 / statistics.of_devices as f64;
    (std::iter::from_fn(|| analyser.poll_command()).collect(), share)
}

#[test]
fn an_ssds_captures_have_the_commands_of_their_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures/nettlp-p4600");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("SKIPPED: there are no captures in {}", folder.display());
        return;
    };
    let mut count = 0;
    for path in entries.map(|entry| entry.expect("a folder that can be listed").path()) {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let [_, kind, blocks] = *name.split('-').collect::<Vec<_>>() else { panic!("{name}") };
        let blocks: u64 = blocks.trim_end_matches("blk").parse().expect("a number of blocks");
        let kind = if kind == "read" { Kind::InferredRead } else { Kind::InferredWrite };
        let (commands, share) = commands(&std::fs::read(&path).expect("a file"));
        let found: Vec<_> = commands.iter().map(|command| (command.kind, command.bytes)).collect();
        assert_eq!((found, share), (vec![(kind, blocks * 512)], 1.0), "{name}");
        count += 1;
    }
    assert_eq!(count, 10);
}
