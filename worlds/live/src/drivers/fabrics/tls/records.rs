//! The records of TLS 1.3 behind the handshake (RFC 8446, 5 and 4.6): bytes are sealed where they
//! lie, and opened into the place where they belong.

use std::io::{self, ErrorKind};
use std::ops::Range;

use aws_lc_rs::error::Unspecified;

use super::keys::{TAG_LENGTH, TrafficKey};

/// The most plain bytes of a record.
pub(super) const PLAIN_MAX: usize = 16 << 10;
/// The bytes of a record's header.
pub(super) const HEADER_LENGTH: usize = 5;
/// The most bytes behind a header: plain bytes, the content type and padding, and the tag, with
/// what RFC 8446 allows beyond.
const SEALED_MAX: usize = PLAIN_MAX + 256;
/// About how many plain bytes are sealed in one go: with half as many, and with twice as many, 128
/// KiB reads and writes are slower.
const SEAL_BYTES: usize = 128 << 10;
/// The memory for received records while few come, and while many come: any record fits.
pub(super) const RAW_BYTES: [usize; 2] = [32 << 10, 256 << 10];
/// How many records one key protects before the next key is used. AES-GCM allows 2^24.5 (RFC 8446,
/// 5.5).
pub(super) const RECORDS_MAX: u64 = 1 << 24;
/// How many records without data may follow one another.
const EMPTY_MAX: u32 = 32;
/// How many reads of the socket and records without data one call takes once it has data, and one
/// read more for each block of its place. A sender of tiny records or of many keys holds up other
/// connections no longer.
const PATIENCE: usize = 8;
/// The most bytes of a handshake message that comes in several records.
pub(super) const MESSAGE_MAX: usize = 16 << 10;

/// The types of contents.
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// The types of handshake messages that come behind the handshake.
const NEW_SESSION_TICKET: u8 = 4;
pub(super) const KEY_UPDATE: u8 = 24;

/// The descriptions of alerts (RFC 8446, 6).
const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
/// The first byte of an alert that ends the connection.
const FATAL: u8 = 2;
const WARNING: u8 = 1;

/// Why the other end sends nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has closed its side.
    Closed,
    /// It has found a fault, of this description.
    Alert(u8),
    /// It has broken the protocol; this description was sent.
    Fault(u8),
}

/// Both directions of a connection whose handshake is over.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) receiving: Opener,
    pub(super) sending: Sealer,
    /// The last call of `receive` has found that the socket has nothing left.
    has_all: bool,
}

impl Records {
    /// The records that `receiving` opens and `sending` seals.
    pub(super) const fn new(receiving: TrafficKey, sending: TrafficKey) -> Self {
        Self { receiving: Opener::new(receiving), sending: Sealer::new(sending), has_all: false }
    }

    /// Whether the last [`Records::receive`] has reported all that has come. Otherwise, another
    /// call has more to report: bytes, an end, or an error.
    pub(super) const fn has_all(&self) -> bool {
        self.has_all
    }

    /// Opens received records, into `place`; `read` brings bytes of the socket. Returns the number
    /// of bytes, and 0 when the other end has closed its side.
    ///
    /// # Errors
    /// When nothing has come (`WouldBlock`), or the connection has failed.
    pub(super) fn receive(
        &mut self,
        place: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let (mut filled, mut patience) = (0, PATIENCE + place.len() / RAW_BYTES[1]);
        self.has_all = false;
        while filled < place.len() {
            match self.receiving.next(&mut place[filled..]) {
                Next::Plain(count) => filled += count,
                Next::Control { asks_update } => {
                    self.sending.owes_update |= asks_update;
                    patience = patience.saturating_sub(1);
                }
                // The bytes opened before count first; the end is reported by the next call.
                Next::Ended(_) if filled > 0 => break,
                Next::Ended(End::Closed) => return Ok(0),
                Next::Ended(end) => {
                    if let End::Fault(description) = end {
                        self.sending.alert(FATAL, description);
                    }
                    return Err(explain(end));
                }
                // A read that did not fill its room has emptied the socket.
                Next::More if filled > 0 && self.receiving.is_dry => {
                    self.has_all = true;
                    break;
                }
                Next::More => match self.receiving.read(&mut read) {
                    Ok(true) => patience = patience.saturating_sub(1),
                    Ok(false) if filled > 0 => break,
                    // An end of the stream may be a cut: only an alert closes a side.
                    Ok(false) => return Err(ErrorKind::ConnectionReset.into()),
                    Err(error) if filled > 0 => {
                        self.has_all = error.kind() == ErrorKind::WouldBlock;
                        break;
                    }
                    Err(error) => return Err(error),
                },
            }
            if patience == 0 && filled > 0 {
                break;
            }
        }
        Ok(filled)
    }

    /// Seals the bytes of `pieces`, and sends them by `write`. Returns the number of bytes that are
    /// sent completely. When `write` takes no more, some of the bytes are sealed already: they must
    /// stay at the front of `pieces`.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn send<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.sending.send(pieces, write)
    }

    /// Announces by `write` that nothing more comes.
    pub(super) fn close(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) {
        self.sending.alert(WARNING, CLOSE_NOTIFY);
        // A connection that is gone already needs no closing.
        let _ = self.sending.flush(&mut write);
    }

    /// The bytes of memory for records of both directions.
    pub(super) fn memory(&self) -> usize {
        self.receiving.raw.capacity() + self.receiving.message.capacity() + self.sending.sealed.capacity()
    }

    /// Gives memory back while nothing passes.
    pub(super) fn rest(&mut self) {
        self.receiving.rest();
        self.sending.rest();
    }
}

/// What [`Opener::next`] has found.
enum Next {
    /// So many plain bytes are in the place.
    Plain(usize),
    /// A record without data, which may ask for another key of this end.
    Control { asks_update: bool },
    /// More bytes must be received first.
    More,
    /// Nothing more comes.
    Ended(End),
}

/// The receiving direction.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) key: TrafficKey,
    /// Received bytes: those in `from..to` are records that are not opened yet.
    raw: Vec<u8>,
    from: usize,
    to: usize,
    /// Plain bytes in `raw`, in front of `from`, that had no room in their place.
    plain: Range<usize>,
    /// The last read did not fill its room.
    is_dry: bool,
    /// The last read filled its room: more memory is better.
    is_full: bool,
    /// Records without data since the last one with data.
    empty: u32,
    /// The beginning of a handshake message.
    message: Vec<u8>,
    end: Option<End>,
}

impl Opener {
    const fn new(key: TrafficKey) -> Self {
        Self {
            key,
            raw: Vec::new(),
            from: 0,
            to: 0,
            plain: 0..0,
            is_dry: false,
            is_full: false,
            empty: 0,
            message: Vec::new(),
            end: None,
        }
    }

    /// Moves plain bytes into `place`, which has room.
    fn next(&mut self, place: &mut [u8]) -> Next {
        if !self.plain.is_empty() {
            let count = self.plain.len().min(place.len());
            place[..count].copy_from_slice(&self.raw[self.plain.start..][..count]);
            self.plain.start += count;
            return Next::Plain(count);
        }
        if let Some(end) = self.end {
            return Next::Ended(end);
        }
        let step = match self.whole() {
            Ok(Some(record)) => self.open(record, place),
            Ok(None) => return Next::More,
            Err(description) => Err(description),
        };
        step.unwrap_or_else(|description| {
            let end = End::Fault(description);
            self.end = Some(end);
            Next::Ended(end)
        })
    }

    /// Where the next record's sealed bytes are, if all of them have come.
    fn whole(&self) -> Result<Option<Range<usize>>, u8> {
        let Some(header) = self.raw[self.from..self.to].first_chunk::<HEADER_LENGTH>() else {
            return Ok(None);
        };
        let [kind, 3, _, high, low] = *header else { return Err(DECODE_ERROR) };
        if kind != DATA {
            return Err(UNEXPECTED_MESSAGE);
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > SEALED_MAX {
            return Err(RECORD_OVERFLOW);
        }
        if length <= TAG_LENGTH {
            return Err(BAD_RECORD_MAC);
        }
        let start = self.from + HEADER_LENGTH;
        Ok((self.to - start >= length).then(|| start..start + length))
    }

    /// Opens the record at `record`: into `place` if it fits, or where it is.
    fn open(&mut self, record: Range<usize>, place: &mut [u8]) -> Result<Next, u8> {
        let header: [u8; HEADER_LENGTH] =
            self.raw[self.from..record.start].try_into().map_err(|_| INTERNAL_ERROR)?;
        let length = record.len() - TAG_LENGTH;
        let lands = length <= place.len();
        let inner = if lands {
            let inner = &mut place[..length];
            self.key.open(&header, &self.raw[record.clone()], inner).map_err(|_| BAD_RECORD_MAC)?;
            &*inner
        } else {
            let sealed = &mut self.raw[record.clone()];
            self.key.open_in_place(&header, sealed).map_err(|_| BAD_RECORD_MAC)?;
            &self.raw[record.start..record.start + length]
        };
        self.from = record.end;
        // Padding is zeros behind the content type, within the same limit (RFC 8446, 5.4).
        if inner.len() > PLAIN_MAX + 1 {
            return Err(RECORD_OVERFLOW);
        }
        let end = inner.iter().rposition(|byte| *byte != 0).ok_or(UNEXPECTED_MESSAGE)?;
        let (content, kind) = (&inner[..end], inner[end]);
        if kind == DATA && end > 0 {
            if !self.message.is_empty() {
                return Err(UNEXPECTED_MESSAGE);
            }
            self.empty = 0;
            if lands {
                return Ok(Next::Plain(end));
            }
            self.plain = record.start..record.start + end;
            return Ok(self.next(place));
        }
        self.empty += 1;
        if self.empty > EMPTY_MAX {
            return Err(UNEXPECTED_MESSAGE);
        }
        match kind {
            DATA => Ok(Next::Control { asks_update: false }),
            ALERT => match *content {
                [_, description] => Ok(self.on_alert(description)),
                _ => Err(DECODE_ERROR),
            },
            HANDSHAKE => {
                let content = content.to_vec();
                self.on_handshake(&content)
            }
            _ => Err(UNEXPECTED_MESSAGE),
        }
    }

    fn on_alert(&mut self, description: u8) -> Next {
        let end = if description == CLOSE_NOTIFY { End::Closed } else { End::Alert(description) };
        self.end = Some(end);
        Next::Ended(end)
    }

    /// Takes a part of the handshake messages behind the handshake.
    fn on_handshake(&mut self, part: &[u8]) -> Result<Next, u8> {
        if part.is_empty() || self.message.len() + part.len() > MESSAGE_MAX {
            return Err(UNEXPECTED_MESSAGE);
        }
        self.message.extend_from_slice(part);
        let (mut asks_update, mut done) = (false, 0);
        while let [kind, high, middle, low, ref rest @ ..] = self.message[done..] {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if 4 + length > MESSAGE_MAX {
                return Err(UNEXPECTED_MESSAGE);
            }
            let Some(content) = rest.get(..length) else { break };
            done += 4 + length;
            match (kind, content) {
                // Sessions are not resumed: each handshake proves the pre-shared key.
                (NEW_SESSION_TICKET, _) => {}
                // The next record has another key, so no message may follow in this one.
                (KEY_UPDATE, [asks @ 0..=1]) if self.message.len() == done => {
                    asks_update |= *asks == 1;
                    self.key.update().map_err(|_| INTERNAL_ERROR)?;
                }
                _ => return Err(UNEXPECTED_MESSAGE),
            }
        }
        self.message.drain(..done);
        Ok(Next::Control { asks_update })
    }

    /// Receives bytes by `read`. Returns whether any have come; without any, the stream has ended.
    fn read(&mut self, read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        self.raw.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let wanted = RAW_BYTES[usize::from(self.is_full)];
        if self.raw.len() < wanted {
            self.raw.resize(wanted, 0);
        }
        let room = self.raw.len() - self.to;
        let result = read(&mut self.raw[self.to..]);
        let count = *result.as_ref().unwrap_or(&0);
        self.is_dry = count < room;
        self.is_full |= !self.is_dry;
        self.to += count;
        result.map(|count| count > 0)
    }

    fn rest(&mut self) {
        if self.from == self.to && self.plain.is_empty() {
            self.raw = Vec::new();
            self.message.shrink_to_fit();
            (self.from, self.to, self.is_full) = (0, 0, false);
        }
    }
}

/// The sending direction.
#[derive(Debug)]
pub(super) struct Sealer {
    pub(super) key: TrafficKey,
    /// Memory for records. Those in `sent..end` are not sent yet.
    sealed: Vec<u8>,
    sent: usize,
    end: usize,
    /// The number of plain bytes in these records.
    taken: usize,
    /// Where the plain bytes of a record begin that is not sealed yet; they end at `end`.
    open: Option<usize>,
    /// The other end asks for another key.
    owes_update: bool,
    /// An alert was sealed: nothing follows it.
    is_over: bool,
}

impl Sealer {
    const fn new(key: TrafficKey) -> Self {
        Self {
            key,
            sealed: Vec::new(),
            sent: 0,
            end: 0,
            taken: 0,
            open: None,
            owes_update: false,
            is_over: false,
        }
    }

    fn send<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.taken == 0 && !self.is_over {
            self.seal(pieces).map_err(|_| io::Error::other("TLS: the cipher refuses to seal"))?;
        }
        if self.flush(&mut write)? { Ok(core::mem::take(&mut self.taken)) } else { Ok(0) }
    }

    /// Sends records. Returns whether all are sent.
    pub(super) fn flush(&mut self, write: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        while self.sent < self.end {
            match write(&self.sealed[self.sent..self.end]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        (self.sent, self.end) = (0, 0);
        Ok(true)
    }

    /// Seals about [`SEAL_BYTES`] bytes of `pieces`. Short pieces share a record. A long piece
    /// begins a record of its own, which is sealed from where the piece lies.
    fn seal<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> Result<(), Unspecified> {
        for mut piece in pieces {
            while !piece.is_empty() && self.taken < SEAL_BYTES {
                let count = self.seal_some(piece)?;
                self.taken += count;
                piece = &piece[count..];
            }
            if self.taken >= SEAL_BYTES {
                break;
            }
        }
        self.end_open()
    }

    /// Puts the beginning of `piece` into a record. Returns the number of bytes.
    fn seal_some(&mut self, piece: &[u8]) -> Result<usize, Unspecified> {
        if piece.len() >= PLAIN_MAX {
            self.end_open()?;
            self.renew()?;
            self.seal_record(DATA, &piece[..PLAIN_MAX])?;
            return Ok(PLAIN_MAX);
        }
        let start = match self.open {
            Some(start) => start,
            None => {
                self.renew()?;
                self.room(HEADER_LENGTH + PLAIN_MAX + 1 + TAG_LENGTH);
                self.end += HEADER_LENGTH;
                *self.open.insert(self.end)
            }
        };
        let count = piece.len().min(start + PLAIN_MAX - self.end);
        self.sealed[self.end..][..count].copy_from_slice(&piece[..count]);
        self.end += count;
        if self.end - start == PLAIN_MAX {
            self.end_open()?;
        }
        Ok(count)
    }

    /// Seals the open record where it is, if there is one.
    fn end_open(&mut self) -> Result<(), Unspecified> {
        let Some(start) = self.open.take() else { return Ok(()) };
        self.sealed[self.end] = DATA;
        self.end += 1 + TAG_LENGTH;
        let header = header(self.end - start);
        self.sealed[start - HEADER_LENGTH..start].copy_from_slice(&header);
        self.key.seal_in_place(&header, &mut self.sealed[start..self.end])
    }

    /// Goes on to the next key if the other end asks for it, or this one is used up.
    fn renew(&mut self) -> Result<(), Unspecified> {
        if self.owes_update || self.key.used() >= RECORDS_MAX {
            self.owes_update = false;
            self.seal_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0])?;
            self.key.update()?;
        }
        Ok(())
    }

    /// Seals `plain` as a record, from where it is.
    pub(super) fn seal_record(&mut self, kind: u8, plain: &[u8]) -> Result<(), Unspecified> {
        let length = plain.len() + 1 + TAG_LENGTH;
        let header = header(length);
        self.room(HEADER_LENGTH + length);
        let record = &mut self.sealed[self.end..][..HEADER_LENGTH + length];
        record[..HEADER_LENGTH].copy_from_slice(&header);
        self.key.seal(&header, plain, kind, &mut record[HEADER_LENGTH..])?;
        self.end += HEADER_LENGTH + length;
        Ok(())
    }

    /// Provides memory for `count` bytes behind the records.
    fn room(&mut self, count: usize) {
        let length = self.end + count;
        if self.sealed.len() < length {
            self.sealed.resize(length.next_power_of_two(), 0);
        }
    }

    /// Puts an alert behind the sealed records, the last of them.
    fn alert(&mut self, level: u8, description: u8) {
        if !core::mem::replace(&mut self.is_over, true) {
            // The connection ends either way.
            let _ = self.seal_record(ALERT, &[level, description]);
        }
    }

    fn rest(&mut self) {
        if self.end == 0 {
            self.sealed = Vec::new();
        }
    }
}

/// The header of a record with `length` sealed bytes.
fn header(length: usize) -> [u8; HEADER_LENGTH] {
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    [DATA, 3, 3, high, low]
}

/// Why the other end sends nothing more, in words.
fn explain(end: End) -> io::Error {
    match end {
        End::Closed => ErrorKind::ConnectionReset.into(),
        End::Alert(description) => {
            io::Error::other(format!("TLS: the other end has ended the connection by alert {description}"))
        }
        End::Fault(BAD_RECORD_MAC) => {
            io::Error::other("TLS: a record was changed on its way, or was sealed by another key")
        }
        End::Fault(description) => {
            io::Error::other(format!("TLS: the other end has broken the protocol (alert {description})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::keys::Suite;
    use super::*;
    use zeroize::Zeroizing;

    fn ends() -> [Records; 2] {
        let suite = Suite::of_name("TLS_AES_128_GCM_SHA256").unwrap();
        let key = |byte| TrafficKey::new(suite, Zeroizing::new(vec![byte; 32])).unwrap();
        [Records::new(key(1), key(2)), Records::new(key(2), key(1))]
    }

    /// Sends `bytes` from one end to the other. Returns what was received, and how many bytes went.
    fn pass(one: &mut Records, other: &mut Records, bytes: &[u8]) -> io::Result<(Vec<u8>, usize)> {
        let mut way = VecDeque::new();
        one.send(std::iter::once(bytes), |sealed| {
            way.extend(sealed);
            Ok(sealed.len())
        })?;
        let length = way.len();
        let mut place = vec![0; bytes.len() + 100];
        let count = other.receive(&mut place, |room| match io::Read::read(&mut way, room)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        })?;
        place.truncate(count);
        Ok((place, length))
    }

    #[test]
    fn a_key_is_replaced_when_it_is_used_up_and_when_the_other_end_asks() {
        let [mut one, mut other] = ends();
        let plain = pass(&mut one, &mut other, b"first").unwrap();
        assert_eq!(plain, (b"first".to_vec(), 5 + 22));
        for key in [&mut one.sending.key, &mut other.receiving.key] {
            key.skip(RECORDS_MAX - 2);
        }
        assert_eq!(pass(&mut one, &mut other, b"last").unwrap(), (b"last".to_vec(), 4 + 22));
        assert_eq!(one.sending.key.used(), RECORDS_MAX);
        // A KeyUpdate goes in front, by the old key.
        assert_eq!(pass(&mut one, &mut other, b"new").unwrap(), (b"new".to_vec(), 3 + 22 + 5 + 22));
        assert_eq!((one.sending.key.used(), other.receiving.key.used()), (1, 1));

        one.sending.seal_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]).unwrap();
        one.sending.key.update().unwrap();
        assert_eq!(pass(&mut one, &mut other, b"asks").unwrap().0, b"asks");
        assert_eq!(pass(&mut other, &mut one, b"heeds").unwrap(), (b"heeds".to_vec(), 5 + 22 + 5 + 22));
        assert_eq!(pass(&mut other, &mut one, b"once").unwrap().1, 4 + 22);
    }

    #[test]
    fn messages_without_a_meaning_end_the_connection() {
        let ticket = [&[NEW_SESSION_TICKET, 0, 0, 3], &b"abc"[..]].concat();
        let [mut one, mut other] = ends();
        one.sending.seal_record(HANDSHAKE, &ticket[..5]).unwrap();
        one.sending.seal_record(HANDSHAKE, &ticket[5..]).unwrap();
        one.sending.seal_record(DATA, &[]).unwrap();
        assert_eq!(pass(&mut one, &mut other, b"data").unwrap().0, b"data");
        // Padding of a record that is full but for it.
        let [mut one, mut other] = ends();
        one.sending.seal_record(0, &[&[1, DATA][..], &[0; PLAIN_MAX - 2]].concat()).unwrap();
        assert_eq!(pass(&mut one, &mut other, b"data").unwrap().0, b"\x01data");
        one.sending.seal_record(0, &[&[1, DATA][..], &[0; PLAIN_MAX - 1]].concat()).unwrap();
        assert!(pass(&mut one, &mut other, b"data").unwrap_err().to_string().contains("(alert 22)"));
        let bad: [&[(u8, &[u8])]; 9] = [
            &[(HANDSHAKE, &[])],
            &[(HANDSHAKE, &[1, 0, 0, 0])],
            &[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2])],
            &[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, 4])],
            &[(HANDSHAKE, &[KEY_UPDATE, 0xff, 0, 0])],
            &[(HANDSHAKE, &[KEY_UPDATE, 0, 0]), (DATA, b"within a message")],
            &[(ALERT, &[2])],
            &[(20, &[1])],
            &[(DATA, &[] as &[u8]); 40],
        ];
        for records in bad {
            let [mut one, mut other] = ends();
            for (kind, content) in records {
                one.sending.seal_record(*kind, content).unwrap();
            }
            let error = pass(&mut one, &mut other, b"data").unwrap_err();
            assert!(error.to_string().contains("has broken the protocol"), "{records:?}: {error}");
            let answer = pass(&mut other, &mut one, b"answer").unwrap_err();
            assert!(answer.to_string().contains("by alert"), "{records:?}: {answer}");
        }
    }
}
