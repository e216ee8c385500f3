//! Entry of the fuzz target of TLS records: a peer that has the keys sends what it likes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use engine::fuzz::Source;
use zeroize::Zeroizing;

use super::keys::{Suite, TrafficKey};
use super::records::{
    DATA, HANDSHAKE, HEADER_LENGTH, KEY_UPDATE, MESSAGE_MAX, PLAIN_MAX, RAW_BYTES, RECORDS_MAX, Records,
};

/// The most memory of both directions of a connection.
const MEMORY_MAX: usize = 2 * RAW_BYTES[1] + 2 * MESSAGE_MAX;
/// The most steps of an input: each may pass some 64 KiB.
const STEPS_MAX: usize = 256;

/// What an input has led to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How the connection ended, if it did.
    pub end: Option<String>,
    /// The bytes that came.
    pub bytes: usize,
    /// The keys that the end under test has gone on to, in both directions.
    pub keys: u64,
}

/// Receives the records of `input` and answers them.
///
/// # Panics
/// When bytes come that were not sent in this order, memory grows beyond its limit, a key is used
/// for too many records, or a connection goes on behind its end.
pub fn tls_records(input: &[u8]) -> Outcome {
    let mut world = World::new(input);
    for _ in 0..STEPS_MAX {
        if world.source.is_empty() {
            break;
        }
        world.step();
    }
    world.deliver(usize::MAX, 64 << 10);
    if world.is_honest {
        assert_eq!(world.outcome.end, None, "an honest peer's connection stays");
        assert_eq!(world.outcome.bytes, world.sent.len(), "all of its bytes come");
    }
    world.outcome
}

/// The end under test, its peer, and the bytes between them.
struct World<'a> {
    source: Source<'a>,
    end: Records,
    peer: Records,
    /// Sealed bytes on their way to the end under test.
    way: VecDeque<u8>,
    /// The data that the peer has sealed.
    sent: Vec<u8>,
    /// The peer has sent nothing but valid records of data, and new keys.
    is_honest: bool,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(input: &'a [u8]) -> Self {
        let mut source = Source::new(input);
        let (name, length) = [
            ("TLS_AES_128_GCM_SHA256", 32),
            ("TLS_AES_256_GCM_SHA384", 48),
            ("TLS_CHACHA20_POLY1305_SHA256", 32),
        ][usize::from(source.byte() % 3)];
        let suite = Suite::of_name(name).expect("the suite is known");
        let key = |byte| {
            TrafficKey::new(suite, Zeroizing::new(vec![byte; length]))
                .expect("the length is that of the hash")
        };
        Self {
            source,
            end: Records::new(key(1), key(2)),
            peer: Records::new(key(2), key(1)),
            way: VecDeque::new(),
            sent: Vec::new(),
            is_honest: true,
            outcome: Outcome::default(),
        }
    }

    fn step(&mut self) {
        match self.source.byte() % 9 {
            0 => {
                let (length, padding) = (usize::from(self.source.half()) % (PLAIN_MAX + 1), 0);
                self.data(length, padding);
            }
            1 => {
                let (length, padding) = (usize::from(self.source.byte()), usize::from(self.source.half()));
                self.data(length, padding % (PLAIN_MAX + 300));
            }
            2 => {
                let [kind, length, padding] = [(); 3].map(|()| self.source.byte());
                // Half of them have a type that RFC 8446 knows.
                let kind = if kind < 0x80 { kind } else { 20 + kind % 4 };
                let (length, padding) = (usize::from(length) % 40, usize::from(padding));
                let content = self.source.bytes(length).to_vec();
                self.is_honest = false;
                if kind == DATA {
                    self.sent.extend_from_slice(&content);
                }
                self.seal(kind, &content, padding);
            }
            3 => self.new_keys(),
            4 => {
                // A header, and bytes that no key has sealed.
                self.is_honest = false;
                let length = HEADER_LENGTH + usize::from(self.source.byte());
                self.way.extend(self.source.bytes(length));
            }
            5 => {
                // Records that a key protects already, up to the last ones before its limit.
                let left = u64::from(self.source.byte() % 4);
                for [one, other] in [
                    [&mut self.peer.sending.key, &mut self.end.receiving.key],
                    [&mut self.end.sending.key, &mut self.peer.receiving.key],
                ] {
                    // Both ends count alike only while no record is on its way.
                    if one.used() == other.used() && one.used() < RECORDS_MAX - left {
                        let count = RECORDS_MAX - left - one.used();
                        one.skip(count);
                        other.skip(count);
                    }
                }
            }
            6 => self.answer(),
            7 => {
                let (bytes, room) = (usize::from(self.source.half()), usize::from(self.source.half()));
                self.deliver(bytes, room % 40_000 + 1);
            }
            _ => self.end.rest(),
        }
        assert!(self.end.memory() <= MEMORY_MAX, "{} B of memory", self.end.memory());
    }

    /// Sends a record of the peer's, with so many zeros behind its content type.
    fn seal(&mut self, kind: u8, content: &[u8], padding: usize) {
        let sending = &mut self.peer.sending;
        let sealed = match padding {
            0 => sending.seal_record(kind, content),
            // The last of the zeros stands where the content type would.
            _ => sending.seal_record(0, &[content, &[kind], &vec![0; padding - 1]].concat()),
        };
        sealed.expect("the cipher seals");
        self.leave();
    }

    /// Moves what the peer has sealed onto its way.
    fn leave(&mut self) {
        let way = &mut self.way;
        let left = self.peer.sending.flush(&mut |bytes: &[u8]| {
            way.extend(bytes);
            Ok(bytes.len())
        });
        assert!(left.is_ok_and(|is_all| is_all), "the way takes all");
    }

    fn data(&mut self, length: usize, padding: usize) {
        // Other lengths are allowed to no sender, or to none for ever.
        self.is_honest &= length > 0 && length + padding <= PLAIN_MAX;
        let first = self.sent.len();
        let bytes: Vec<u8> = (first..first + length).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        self.sent.extend_from_slice(&bytes);
        self.seal(DATA, &bytes, padding);
    }

    /// Announces keys, goes on to them or not, and asks for keys or not.
    fn new_keys(&mut self) {
        let [count, how] = [self.source.byte() % 40, self.source.byte()];
        for _ in 0..count {
            self.seal(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, how & 1], usize::from(how >> 4));
            if how & 2 == 0 {
                self.peer.sending.key.update().expect("there is a next key");
            } else {
                self.is_honest = false;
            }
        }
        // So many without data may be a flood.
        self.is_honest &= count <= 1;
        if how & 4 == 0 {
            self.data(1, 0);
        }
    }

    /// Sends at the end under test, and checks that the peer opens it.
    fn answer(&mut self) {
        let length = usize::from(self.source.half());
        let bytes = vec![7; length];
        let before = self.end.sending.key.used();
        let mut way = VecDeque::new();
        let sent = self.end.send(std::iter::once(&bytes[..]), |sealed| {
            way.extend(sealed);
            Ok(sealed.len())
        });
        let used = self.end.sending.key.used();
        assert!(used <= RECORDS_MAX + 1, "{used} records by one key");
        self.outcome.keys += u64::from(used < before);
        let count = sent.expect("the way takes all");
        assert!(self.outcome.end.is_some() || count == length, "all is sent, unless the connection is over");
        assert!(way.len() <= length + 24 * (length / PLAIN_MAX + 4), "few records: {} B", way.len());
        let mut come = 0;
        let mut place = vec![0; length + 1];
        while come < count {
            let received = self.peer.receive(&mut place[come..], |room| take(&mut way, room));
            come += received.expect("the peer opens what is sent");
        }
        assert!(come == count && place[..count] == bytes[..count], "the peer receives what is sent");
        // An alert may follow.
        let _ = self.peer.receive(&mut place[..1], |room| take(&mut way, room));
        assert!(way.is_empty(), "nothing else is sent");
    }

    /// Delivers up to `bytes` bytes, and receives all that comes, `room` bytes at a time.
    fn deliver(&mut self, bytes: usize, room: usize) {
        let mut part: VecDeque<u8> = self.way.drain(..bytes.min(self.way.len())).collect();
        let mut place = vec![0; room];
        loop {
            let before = self.end.receiving.key.used();
            let received = self.end.receive(&mut place, |room| take(&mut part, room));
            self.outcome.keys += u64::from(self.end.receiving.key.used() < before);
            let ended = match received {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(part.is_empty() || self.outcome.end.is_some(), "all bytes are taken");
                    return;
                }
                Err(error) => error.to_string(),
                Ok(0) => "closed".to_owned(),
                Ok(count) => {
                    assert!(self.outcome.end.is_none(), "nothing comes behind an end");
                    let wanted = self.sent.get(self.outcome.bytes..self.outcome.bytes + count);
                    assert!(wanted == Some(&place[..count]), "what comes was sent, in its order");
                    self.outcome.bytes += count;
                    continue;
                }
            };
            let first = self.outcome.end.get_or_insert_with(|| ended.clone());
            assert_eq!(*first, ended, "an end stays");
            return;
        }
    }
}

/// Receives of `way` as of a socket that never waits.
fn take(way: &mut VecDeque<u8>, room: &mut [u8]) -> io::Result<usize> {
    match io::Read::read(way, room)? {
        0 => Err(ErrorKind::WouldBlock.into()),
        count => Ok(count),
    }
}
