//! Recordings that are striped over several media: which are there, and where a slot lies.

use std::io;
use std::path::Path;

use record::format::{HEADER_LENGTH, Header, Kind, MEMBER_SLOT, Member};

use super::far::Far;
use super::reading::{ReadError, Store, find};
use super::real_time;
use crate::sys::digest::crc32c;

/// How many slots behind a damaged label are searched for the recording's name. The first ones of a
/// member may be empty until the recording ends.
const SEARCHED_SLOTS: u64 = 8;

/// The whole chunk by which a medium says which member of a recording it is.
pub(super) fn label(recording: [u8; 16], chunk: u32, member: Member) -> Vec<u8> {
    let mut bytes = vec![0; chunk as usize];
    let length = u32::try_from(member.emit(&mut bytes[HEADER_LENGTH..])).unwrap_or(u32::MAX);
    let (kind, slot, time) = (Kind::Member, MEMBER_SLOT, real_time());
    let (sequence, stream, offset, overwrote) = (0, 0, 0, None);
    let header = Header { kind, recording, slot, sequence, chunk, stream, offset, length, time, overwrote };
    header.emit(&mut bytes, crc32c);
    bytes
}

/// A medium that has a recording or part of one.
#[derive(Debug)]
pub struct Part {
    store: Store,
    in_use: bool,
    /// The length of its chunks in bytes.
    chunk: u32,
    /// The recording.
    name: [u8; 16],
    /// Which member it says that it is.
    member: Option<Member>,
}

impl Part {
    /// Opens a file or block device. If `change`, its recording can be repaired.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path, change: bool) -> Result<Self, ReadError> {
        let (store, in_use) = Store::open(path, change)?;
        Self::of(store, in_use)
    }

    /// A namespace of another device.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn far(far: Box<Far>) -> Result<Self, ReadError> {
        Self::of(Store::far(far), false)
    }

    fn of(store: Store, in_use: bool) -> Result<Self, ReadError> {
        let chunk = find(&store)?.ok_or(ReadError::NoRecording)?;
        let mut bytes = vec![0; chunk as usize];
        let length = store.read_slot(&mut bytes, 0)?;
        let (name, member) = match Header::parse_chunk(MEMBER_SLOT, &bytes[..length], crc32c) {
            Ok((header, payload)) if header.kind == Kind::Member => {
                (header.recording, Member::parse(payload))
            }
            Ok((header, _)) => (header.recording, None),
            // Where the label is damaged, a chunk behind it names the recording.
            Err(_) => {
                let mut name = None;
                for slot in 1..=SEARCHED_SLOTS {
                    let length = store.read_slot(&mut bytes, slot * u64::from(chunk))?;
                    let header = Header::parse(&bytes[..length], crc32c).ok();
                    name = name.or(header.map(|header| header.recording));
                }
                (name.unwrap_or_default(), None)
            }
        };
        Ok(Self { store, in_use, chunk, name, member })
    }

    /// Makes one medium of all parts of a recording, in whichever order they are. Returns it, and
    /// whether a recorder writes it now.
    pub(super) fn join(mut parts: Vec<Self>) -> Result<(Store, bool), ReadError> {
        let in_use = parts.iter().any(|part| part.in_use);
        let known = parts.iter().find_map(|part| Some((part.chunk, part.name, part.member?.count)));
        let Some((chunk, name, count)) = known else {
            return match parts.len() {
                1 => Ok((parts.remove(0).store, in_use)),
                several => {
                    let why =
                        format!("it and {} more are no members of a set: name one of them", several - 1);
                    Err(ReadError::Members(why))
                }
            };
        };
        let mut places: Vec<Option<Store>> = (0..count).map(|_| None).collect();
        let mut unnamed = Vec::new();
        for (number, part) in (1..).zip(parts) {
            // A label that is whole may be of another set, or forged.
            let is_of_set = part.member.is_none_or(|member| member.count == count);
            if part.name != name || part.chunk != chunk || !is_of_set {
                let why =
                    format!("member {number} of the given ones belongs to another recording: leave it out");
                return Err(ReadError::Members(why));
            }
            let Some(member) = part.member else {
                unnamed.push(part.store);
                continue;
            };
            if places[member.index as usize].replace(part.store).is_some() {
                let why = format!("member {} of {count} is named twice: name each once", member.index);
                return Err(ReadError::Members(why));
            }
        }
        // A medium whose label is damaged is the one that is not there otherwise.
        let missing = places.iter().filter(|place| place.is_none()).count();
        if let (1, 1) = (missing, unnamed.len()) {
            places.iter_mut().filter(|place| place.is_none()).for_each(|place| *place = unnamed.pop());
        }
        let missing: Vec<_> = (0..).zip(&places).filter(|(_, place)| place.is_none()).collect();
        if !missing.is_empty() || !unnamed.is_empty() {
            let numbers: Vec<_> = missing.iter().map(|(number, _): &(u32, _)| number.to_string()).collect();
            return Err(ReadError::Members(format!(
                "it is striped over {count} members, counted from 0, and member {} is missing: name all of them",
                numbers.join(", ")
            )));
        }
        let members = places.into_iter().flatten().collect();
        Ok((Store::Striped(Stripes { members, chunk, name }), in_use))
    }
}

/// All members of a striped recording.
#[derive(Debug)]
pub(super) struct Stripes {
    members: Vec<Store>,
    chunk: u32,
    name: [u8; 16],
}

impl Stripes {
    /// The length of a chunk in bytes.
    pub(super) const fn chunk(&self) -> u32 {
        self.chunk
    }

    #[cfg(test)]
    pub(super) const fn of(members: Vec<Store>, chunk: u32) -> Self {
        Self { members, chunk, name: [7; 16] }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// The members in their order.
    pub(super) fn members(&self) -> &[Store] {
        &self.members
    }

    /// The member that has all of these bytes, and where it has them; `None` if several have.
    pub(super) fn place(&self, offset: u64, length: usize) -> Option<(usize, u64)> {
        let chunk = u64::from(self.chunk);
        let (member, slot) = Member::place(self.count(), offset / chunk);
        let is_one = offset % chunk + length as u64 <= chunk;
        is_one.then(|| (member as usize, slot * chunk + offset % chunk))
    }

    /// Each member with its number.
    fn each(&self) -> impl Iterator<Item = (Member, &Store)> {
        let count = self.count();
        (0..).zip(&self.members).map(move |(index, store)| (Member { index, count }, store))
    }

    /// The pieces of `length` bytes from `offset`: member, place there, and length.
    fn pieces(&self, offset: u64, length: usize) -> Vec<(&Store, u64, usize)> {
        let chunk = u64::from(self.chunk);
        let (mut pieces, mut at, end) = (Vec::new(), offset, offset + length as u64);
        while at < end {
            let (member, slot) = Member::place(self.count(), at / chunk);
            let most = (chunk - at % chunk).min(end - at);
            let store = &self.members[member as usize];
            pieces.push((store, slot * chunk + at % chunk, usize::try_from(most).unwrap_or(usize::MAX)));
            at += most;
        }
        pieces
    }

    /// Reads as much as there is. Bytes that one member lacks before the end of all are zero.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let there = self.bytes()?.saturating_sub(offset).min(bytes.len() as u64);
        let length = usize::try_from(there).unwrap_or(usize::MAX);
        let mut at = 0;
        for (store, place, length) in self.pieces(offset, length) {
            let read = store.read_at(&mut bytes[at..at + length], place)?;
            bytes[at + read..at + length].fill(0);
            at += length;
        }
        Ok(length)
    }

    /// The length in bytes of the striped medium.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        let chunk = u64::from(self.chunk);
        let mut slots = 0;
        for (member, store) in self.each() {
            slots = member.reach(store.bytes()?.div_ceil(chunk)).max(slots);
        }
        // Sparse members may be longer together than any medium is.
        Ok(slots.min(u64::MAX / chunk) * chunk)
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut rest = bytes;
        for (store, place, length) in self.pieces(offset, bytes.len()) {
            let (piece, behind) = rest.split_at(length);
            store.write_at(piece, place)?;
            rest = behind;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.members.iter().try_for_each(Store::sync)
    }

    /// Cuts files off behind what holds the first `length` bytes.
    pub(super) fn cut(&self, length: u64) {
        let chunk = u64::from(self.chunk);
        self.each().for_each(|(member, store)| store.cut(member.slots(length.div_ceil(chunk)) * chunk));
    }

    /// Lets each medium say which member it is.
    pub(super) fn write_labels(&self) -> io::Result<()> {
        self.each().try_for_each(|(member, store)| store.write_at(&label(self.name, self.chunk, member), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose first chunk says which member it is.
    fn part(chunk: u32, index: u32, count: u32) -> Part {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), label([7; 16], chunk, Member { index, count })).unwrap();
        Part::open(file.path(), false).unwrap()
    }

    fn refusal(parts: Vec<Part>) -> String {
        Part::join(parts).unwrap_err().to_string()
    }

    #[test]
    fn sparse_members_that_are_too_long_together_have_a_length_all_the_same() {
        let member = |_| {
            let file: std::fs::File =
                rustix::fs::memfd_create("member", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
            file.set_len(1 << 60).unwrap();
            Store::File(file)
        };
        let all = Stripes::of((0..64).map(member).collect(), 1 << 20);
        assert_eq!(all.bytes().unwrap(), u64::MAX - ((1 << 20) - 1));
        assert_eq!(all.read_at(&mut [0; 512], u64::MAX - (1 << 20) - 511).unwrap(), 512);
    }

    #[test]
    fn members_that_disagree_about_their_set_are_refused() {
        const CHUNK: u32 = 16 << 10;
        assert!(Part::join(vec![part(CHUNK, 1, 2), part(CHUNK, 0, 2)]).is_ok());
        // More members than the first one says, fewer, and chunks of another length.
        for odd in [part(CHUNK, 63, 64), part(CHUNK, 0, 3), part(2 * CHUNK, 0, 2)] {
            let why = refusal(vec![part(CHUNK, 1, 2), odd]);
            assert!(why.contains("member 2") && why.contains("another recording"), "{why}");
        }
        let why = refusal(vec![part(CHUNK, 1, 2), part(CHUNK, 1, 2)]);
        assert!(why.contains("member 1 of 2 is named twice"), "{why}");
    }
}
