//! A recording of packets, made by the recorder in memory.

use engine::Engine;
use record::format::{Content, LinkType, Packet, PacketFlags, Reason, Time, TimeSource};
use record::{Config, Input, Output, Recorder};

const MILLISECOND: u64 = 1_000_000;
/// When the first packet came, in nanoseconds since 1970.
pub(crate) const START: u64 = 1_700_000_000_000_000_000;

/// Writes a recording of `count` packets, one a millisecond, 30 to a chunk.
pub(crate) fn record_packets(path: &str, link: LinkType, count: u64, packet: fn(u64) -> Vec<u8>) {
    let mut config = Config::new([5; 16], vec!["udp://127.0.0.1:5000".to_owned()]);
    config.contents = vec![Content::Packets(link)];
    let mut recorder = Recorder::new(config, Time::NONE);
    let now = engine::Instant::ZERO;
    let mut medium = Vec::new();
    for number in 0..=count {
        if number == count {
            recorder.finish(Reason::SourceEnded);
        } else {
            let time = Time { nanos: START + number * MILLISECOND, source: TimeSource::Kernel };
            let bytes = packet(number);
            let packet = Packet { flags: PacketFlags::default(), time, bytes: &bytes };
            let length = packet.emit(recorder.room(now, 0).unwrap()).unwrap();
            recorder.filled(now, 0, length, time);
            if number % 30 == 29 {
                recorder.end_chunk(0);
            }
        }
        settle(&mut recorder, &mut medium);
    }
    std::fs::write(path, medium).unwrap();
}

/// Does what the recorder asks, with a medium in memory.
fn settle(recorder: &mut Recorder, medium: &mut Vec<u8>) {
    let now = engine::Instant::ZERO;
    while let Some(output) = recorder.poll_output() {
        match output {
            Output::Write { name, offset, data } => {
                let at = usize::try_from(offset).unwrap();
                medium.resize(medium.len().max(at + data.len()), 0);
                medium[at..at + data.len()].copy_from_slice(&data);
                drop(data);
                recorder.handle_input(now, Input::Written { name, result: Ok(()) });
            }
            Output::Sync => recorder.handle_input(now, Input::Synced(Ok(()))),
            Output::Digest { .. } | Output::Ended(_) => {}
        }
    }
}

/// Writes a recording of packets, each a chunk: the number of its stream, its time in nanoseconds
/// since 1970, and its bytes.
pub(crate) fn record_chunks(path: &str, streams: usize, packets: &[(usize, u64, &[u8])]) {
    let mut config = Config::new([6; 16], (0..streams).map(|stream| format!("stream {stream}")).collect());
    config.contents = vec![Content::Packets(LinkType::PAYLOAD); streams];
    let mut recorder = Recorder::new(config, Time::NONE);
    let (now, mut medium) = (engine::Instant::ZERO, Vec::new());
    for (stream, nanos, bytes) in packets {
        let time = Time { nanos: *nanos, source: TimeSource::Kernel };
        let packet = Packet { flags: PacketFlags::default(), time, bytes };
        let length = packet.emit(recorder.room(now, *stream).unwrap()).unwrap();
        recorder.filled(now, *stream, length, time);
        recorder.end_chunk(*stream);
        settle(&mut recorder, &mut medium);
    }
    recorder.finish(Reason::SourceEnded);
    settle(&mut recorder, &mut medium);
    std::fs::write(path, medium).unwrap();
}

/// The bytes of a packet: its number, as often as makes a length of its own.
pub(crate) fn packet(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + usize::try_from(number % 7).unwrap())
}
