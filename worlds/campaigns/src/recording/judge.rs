//! The rules for a medium: nothing on it is false, and no promised data are missing.

use std::collections::BTreeMap;

use record::format::{Entry, HEADER_LENGTH, Header, Holding, Kind, Time, TimeSource};
use record::{Patch, Scan, StreamDigest, Survey};

use super::promises::Taken;
use super::source::Source;
use crate::digest::crc32c;

/// When recordings are recovered.
const WHEN: Time = Time { nanos: 1, source: TimeSource::Host };

/// A medium that is read as `farlane recording verify` and `farlane recording recover` read it.
#[derive(Debug)]
pub(super) struct Reading {
    chunk: u32,
    medium: Vec<u8>,
    pub(super) survey: Survey,
    /// SHA-256 of the stored bytes of each stream.
    digests: Vec<[u8; 32]>,
}

fn survey(medium: &[u8], chunk: u32) -> Survey {
    let mut scan = Scan::new(chunk, crc32c);
    for (slot, bytes) in (0..).zip(medium.chunks(chunk as usize)) {
        scan.on_slot(slot, bytes);
    }
    scan.finish()
}

impl Reading {
    pub(super) fn new(medium: Vec<u8>, chunk: u32) -> Self {
        let survey = survey(&medium, chunk);
        let mut reading = Self { chunk, medium, survey, digests: Vec::new() };
        reading.digest();
        reading
    }

    fn digest(&mut self) {
        let digest = StreamDigest::new(self.survey.algorithm(), self.survey.is_ring());
        let mut digests = vec![digest; self.survey.streams()];
        for entry in &self.survey.entries {
            digests[entry.stream as usize].update(self.payload(entry));
        }
        self.digests = digests.iter().map(StreamDigest::finalize).collect();
    }

    fn slot(&self, slot: u64) -> &[u8] {
        let start = usize::try_from(slot).expect("a slot of the medium") * self.chunk as usize;
        &self.medium[start..self.medium.len().min(start + self.chunk as usize)]
    }

    fn payload(&self, entry: &Entry) -> &[u8] {
        &self.slot(entry.slot)[HEADER_LENGTH..][..entry.length as usize]
    }

    /// Whether the certificate is true, as far as the medium shows.
    pub(super) fn is_proved(&self) -> bool {
        self.survey.doubt(&self.digests).is_none()
    }

    /// Why the recording does not prove itself.
    pub(super) fn reason(&self) -> String {
        let Survey { certificate, holes, overlap, bad, end, ring, .. } = &self.survey;
        let accounts: Vec<_> = (0..)
            .zip(&self.digests)
            .map(|(stream, digest): (u32, _)| {
                let entries = self.survey.entries.iter().filter(|entry| entry.stream == stream);
                let stored: u64 = entries.map(|entry| u64::from(entry.length)).sum();
                (stored, digest.first_chunk::<4>())
            })
            .collect();
        format!(
            "holes {holes:?}, overlap {overlap}, bad {bad:?}, end {end}, ring {ring:?}, stored and digests \
             {accounts:?}, certificate {certificate:?}"
        )
    }

    /// The writes of `farlane recording recover` that make the recording whole, and their places: a
    /// sync follows each step.
    pub(super) fn steps_of_mending(&self) -> Vec<Vec<(usize, Vec<u8>)>> {
        let slots = (self.medium.len() as u64).div_ceil(u64::from(self.chunk));
        let recovery = self.survey.clone().recover(&self.digests, slots, WHEN, crc32c);
        let place = |slot: u64| usize::try_from(slot).expect("a slot near the medium") * self.chunk as usize;
        let placed = |patch: Patch| (place(patch.slot), patch.bytes);
        recovery.steps.into_iter().map(|step| step.into_iter().map(placed).collect()).collect()
    }

    /// Makes the recording whole, as `farlane recording recover` does. The medium grows where it
    /// has no room.
    pub(super) fn mend(&mut self) {
        for (start, bytes) in self.steps_of_mending().into_iter().flatten() {
            if self.medium.len() < start + bytes.len() {
                self.medium.resize(start + bytes.len(), 0);
            }
            self.medium[start..][..bytes.len()].copy_from_slice(&bytes);
        }
        self.survey = survey(&self.medium, self.chunk);
        self.digest();
    }

    /// The length of a chunk in bytes.
    pub(super) const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// The contents of the medium.
    pub(super) fn medium(&self) -> &[u8] {
        &self.medium
    }

    /// The medium's bytes.
    pub(super) fn into_medium(self) -> Vec<u8> {
        self.medium
    }

    /// The data that the survey found and that differ from the received ones, and the data that it
    /// missed.
    pub(super) fn untruths(&self, sources: &[Source]) -> Vec<String> {
        let mut found = Vec::new();
        for entry in &self.survey.entries {
            let Some(source) = sources.get(entry.stream as usize) else {
                found.push(format!("{entry:?} of a stream that there is not"));
                continue;
            };
            if entry.end() > source.came || !source.is(entry.offset, self.payload(entry)) {
                found.push(format!("{entry:?} has other bytes than came"));
            }
        }
        for (slot, bytes) in (0..).zip(self.medium.chunks(self.chunk as usize)) {
            let Ok((header, payload)) = Header::parse_chunk(slot, bytes, crc32c) else { continue };
            let is_ours = Some(header.recording) == self.survey.recording && header.kind == Kind::Data;
            let (stream, from, end) = (header.stream, header.offset, header.end());
            let is_held = self.holding().holds(stream, from, end);
            if is_ours && is_held && !payload.is_empty() && !self.has(stream, from, end) {
                found.push(format!("slot {slot} is good and was not found"));
            }
        }
        found
    }

    /// A ring's contents by the medium's account; everything if it is no ring.
    fn holding(&self) -> Holding {
        self.survey.ring.as_ref().map(|ring| ring.holding.clone()).unwrap_or_default()
    }

    /// Streams of which the medium says that more was overwritten than the recorder has overwritten
    /// or was about to.
    pub(super) fn overstates(&self, holding: &Holding) -> Vec<String> {
        let found = self.holding();
        let streams = (0..).zip(&found.floors).filter(|(stream, floor)| **floor > holding.floor(*stream));
        streams.map(|(stream, floor)| format!("stream {stream} from {floor} on: {holding:?}")).collect()
    }

    /// Whether the medium says that just this is held.
    pub(super) fn accounts_for(&self, holding: &Holding) -> bool {
        let found = self.holding();
        let streams = 0..u32::try_from(self.survey.streams()).unwrap_or(0);
        found.pins == holding.pins
            && streams.into_iter().all(|stream| found.floor(stream) == holding.floor(stream))
    }

    /// Whether these bytes of a stream were found, or one of them was declared as lost.
    pub(super) fn has(&self, stream: u32, from: u64, end: u64) -> bool {
        let covers = |start: u64, behind: u64| start <= from && end <= behind;
        let mut entries = self.survey.entries.iter().filter(|entry| entry.stream == stream);
        let mut gaps = self.survey.gaps.iter().filter(|gap| gap.stream == stream);
        entries.any(|entry| covers(entry.offset, entry.end()))
            || gaps.any(|gap| gap.from < end && from < gap.end())
    }

    /// Which of these chunks are not stored.
    pub(super) fn missing(&self, kept: &[Taken]) -> Vec<String> {
        let is_stored = |taken: &&Taken| {
            let mut entries = self.survey.entries.iter().filter(|entry| entry.stream == taken.stream);
            entries.any(|entry| entry.offset <= taken.offset && taken.end <= entry.end())
        };
        let missing = kept.iter().filter(|taken| !is_stored(taken));
        missing.map(|taken| format!("{taken:?} was durable")).collect()
    }

    /// The false claims in the certificate of a recording that proves itself; `is_whole`: it was
    /// not cut off, so that it knows of every byte.
    pub(super) fn false_claims(&self, sources: &[Source], is_whole: bool) -> Vec<String> {
        let mut found = Vec::new();
        let Some(certificate) = &self.survey.certificate else { return vec!["no certificate".into()] };
        if certificate.streams.len() > sources.len() || is_whole && certificate.streams.len() < sources.len()
        {
            found.push(format!("{} streams of {}", certificate.streams.len(), sources.len()));
        }
        let mut gaps = BTreeMap::<u32, Vec<(u64, u64)>>::new();
        // Lost packets whose bytes are not known take no place.
        for gap in self.survey.gaps.iter().filter(|gap| gap.bytes > 0) {
            gaps.entry(gap.stream).or_default().push((gap.from, gap.end()));
        }
        let holding = self.holding();
        for (number, (certified, source)) in (0..).zip(certificate.streams.iter().zip(sources)) {
            let gaps = gaps.remove(&number).unwrap_or_default();
            let lost: u64 = gaps.iter().map(|(from, end)| end - from).sum();
            let came = source.came;
            if certified.bytes_in > came || is_whole && certified.bytes_in != came {
                found.push(format!("stream {number}: {} bytes in, but {came} came", certified.bytes_in));
            }
            let held = holding.ranges(number, certified.bytes_in);
            let held_bytes: u64 = held.iter().map(|(from, end)| end - from).sum();
            if (certified.lost, certified.stored + certified.lost, held_bytes + certified.overwritten)
                != (lost, held_bytes, certified.bytes_in)
            {
                found.push(format!("stream {number}: {certified:?}, but {lost} of {held:?} are in gaps"));
            }
            if gaps.windows(2).any(|pair| pair[0].1 > pair[1].0) {
                found.push(format!("stream {number}: gaps overlap: {gaps:?}"));
            }
            let is_declared = |(from, end): &(u64, u64)| {
                // Gaps behind each other may be two records.
                let mut at = *from;
                gaps.iter().for_each(|gap| {
                    if gap.0 <= at {
                        at = at.max(gap.1);
                    }
                });
                at >= *end
            };
            let parts = source.lost.iter().flat_map(|lost| {
                held.iter()
                    .map(|held| (held.0.max(lost.0), held.1.min(lost.1)))
                    .filter(|part| part.0 < part.1)
            });
            for lost in parts.filter(|part| !is_declared(part)).take(1) {
                found.push(format!("stream {number}: {lost:?} was lost before the medium: {gaps:?}"));
            }
            let algorithm = self.survey.algorithm();
            let expected = match self.survey.is_ring() {
                true => {
                    let chunks = self.survey.entries.iter().filter(|entry| entry.stream == number);
                    source.digest_of_chunks(algorithm, chunks.map(|entry| (entry.offset, entry.end())))
                }
                false => source.digest(algorithm, certified.bytes_in, &gaps),
            };
            if expected != certified.digest {
                found.push(format!("stream {number}: the digest is not that of the received bytes"));
            }
        }
        found
    }
}
