//! The media of a recording: a single one, or several over which it is striped.

use engine::{Buffer, Instant, Rng};
use record::format::{HEADER_LENGTH, Header, Kind, MEMBER_SLOT, Member, Time};
use record::{Fault, Input};
use sim::models::ssd::Slowdowns;

use super::disk::{Disk, Vices};
use crate::digest::crc32c;

/// The media of a recording. Chunk i lies on medium i modulo their number, behind the label of the
/// medium. A single one has no label.
#[derive(Debug)]
pub(super) struct Media {
    members: Vec<Disk>,
    chunk: u64,
    recording: [u8; 16],
    /// Members that have not ended the sync yet that the recorder asked for.
    syncing: usize,
    synced: Result<(), Fault>,
}

/// The contents of the media in the end.
#[derive(Debug)]
pub(super) struct Contents {
    /// The recording's slots, as if they lay on one medium; `None` if the labels do not say how the
    /// members belong together.
    pub(super) joined: Option<Vec<u8>>,
    /// Number of writes that were under way when the power failed.
    pub(super) under_way: u64,
}

/// The chunk by which a medium says which one of a set it is.
fn label(recording: [u8; 16], chunk: u32, member: Member) -> Buffer {
    let mut bytes = vec![0; chunk as usize];
    let length = u32::try_from(member.emit(&mut bytes[HEADER_LENGTH..])).expect("a few bytes");
    let (kind, slot, sequence, stream, offset) = (Kind::Member, MEMBER_SLOT, 0, 0, 0);
    let (time, overwrote) = (Time::NONE, None);
    let header = Header { kind, recording, slot, sequence, chunk, stream, offset, length, time, overwrote };
    header.emit(&mut bytes, crc32c);
    engine::Pool::new(0).copy(&bytes)
}

impl Media {
    /// Media with these bytes on them, which follow their vices.
    pub(super) fn new(
        members: Vec<(Vec<u8>, Vices)>,
        (recording, chunk): ([u8; 16], u32),
        rng: &Rng,
    ) -> Self {
        let count = u32::try_from(members.len()).expect("a few members");
        let disk = |(index, (durable, vices)): (u32, (Vec<u8>, Vices))| {
            // The first one is as a single one is.
            let own = if index == 0 { rng.clone() } else { rng.fork(&format!("member {index}")) };
            let mut disk = Disk::new(durable, vices, &own);
            if count > 1 {
                disk.put(0, &label(recording, chunk, Member { index, count }));
            }
            disk
        };
        let members = (0..).zip(members).map(disk).collect();
        Self { members, chunk: u64::from(chunk), recording, syncing: 0, synced: Ok(()) }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.members.len()).expect("a few members")
    }

    /// Lets the media get well.
    pub(super) fn heal(&mut self) {
        self.members.iter_mut().for_each(|disk| disk.vices = Vices::default());
    }

    /// Whether a medium could say that all was well when it was not.
    pub(super) fn lied(&self) -> bool {
        self.members.iter().any(Disk::lied)
    }

    /// Whether a write found no room, or a sync failed: the certificate may be missing then.
    pub(super) fn was_spoiled(&self) -> bool {
        self.members.iter().any(|disk| disk.was_spoiled)
    }

    /// Number of writes that ended well, and number of those that ended badly.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.members.iter().fold((0, 0), |sum, disk| (sum.0 + disk.counts.0, sum.1 + disk.counts.1))
    }

    /// The causes that have slowed writes down until now.
    pub(super) fn slowdowns(&self) -> Slowdowns {
        let mut sum = Slowdowns::default();
        for disk in &self.members {
            let one = disk.slowdowns();
            sum.pauses += one.pauses;
            sum.throttled += one.throttled;
            sum.reclaimed += one.reclaimed;
        }
        sum
    }

    /// Begins a write at byte `offset` of the recording.
    pub(super) fn write(&mut self, now: Instant, name: u64, offset: u64, data: Buffer) {
        let (member, slot) = Member::place(self.count(), offset / self.chunk);
        self.members[member as usize].write(now, name, slot * self.chunk + offset % self.chunk, data);
    }

    /// Begins to make written data durable.
    pub(super) fn sync(&mut self, now: Instant) {
        (self.syncing, self.synced) = (self.members.len(), Ok(()));
        self.members.iter_mut().for_each(|disk| disk.sync(now));
    }

    /// When the next call ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.members.iter().filter_map(Disk::next).min()
    }

    /// A call that has ended at `now`; a sync has ended when it has on each medium.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Input> {
        loop {
            let ended = self.members.iter_mut().find_map(|disk| disk.poll(now))?;
            let Input::Synced(result) = ended else { return Some(ended) };
            self.synced = self.synced.and(result);
            self.syncing -= 1;
            if self.syncing == 0 {
                return Some(Input::Synced(self.synced));
            }
        }
    }

    /// The length in bytes of the recording's slots, and of a part of one, on the media.
    pub(super) fn bytes(&self) -> u64 {
        self.members.iter().map(Disk::bytes).sum()
    }

    /// The power fails.
    pub(super) fn cut(self) -> Contents {
        let (chunk, recording) = (self.chunk, self.recording);
        let cut: Vec<_> = self.members.into_iter().map(Disk::cut).collect();
        let under_way = cut.iter().map(|one| one.1).sum();
        let media = cut.into_iter().map(|one| one.0).collect();
        Contents { joined: join(media, chunk, recording), under_way }
    }

    /// The contents of the media while they have power.
    pub(super) fn contents(self) -> Contents {
        let (chunk, recording) = (self.chunk, self.recording);
        let media = self.members.into_iter().map(Disk::contents).collect();
        Contents { joined: join(media, chunk, recording), under_way: 0 }
    }
}

/// The recording's slots on the members of a set, if their labels say how they belong together. A
/// member without a label is the only one that is missing otherwise.
fn join(mut media: Vec<Vec<u8>>, chunk: u64, recording: [u8; 16]) -> Option<Vec<u8>> {
    if media.len() == 1 {
        return media.pop();
    }
    let length = usize::try_from(chunk).expect("a chunk");
    let count = u32::try_from(media.len()).expect("a few members");
    let mut unnamed = 0;
    for (index, medium) in (0..).zip(&media) {
        let first = &medium[..length.min(medium.len())];
        match Header::parse_chunk(MEMBER_SLOT, first, crc32c) {
            Ok((header, _)) if header.recording != recording => return None,
            Ok((header, payload)) if header.kind == Kind::Member => {
                let is_its_own = Member::parse(payload) == Some(Member { index, count });
                assert!(is_its_own, "a label that was never written: {payload:?}");
            }
            _ => unnamed += 1,
        }
    }
    if unnamed > 1 {
        return None;
    }
    let reach = |(index, medium): (u32, &Vec<u8>)| {
        Member { index, count }.reach((medium.len() as u64).div_ceil(chunk))
    };
    let slots = (0..).zip(&media).map(reach).max().unwrap_or(0);
    let mut joined = vec![0; usize::try_from(slots).expect("a few slots") * length];
    for (slot, to) in (0..).zip(joined.chunks_exact_mut(length)) {
        let (member, own) = Member::place(count, slot);
        let from = usize::try_from(own * chunk).expect("a place in memory");
        // The slots that one lacks before the end of another are empty.
        let medium = &media[member as usize];
        let there = medium.len().saturating_sub(from).min(length);
        to[..there].copy_from_slice(&medium[medium.len().min(from)..][..there]);
    }
    Some(joined)
}
