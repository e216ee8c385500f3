//! Several media that take one recording together.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use engine::{Buffer, Nanos, Pool};
use record::format::{MEMBERS_MAX, Member};
use record::{Fault, Input};

use super::{Sink, Target};
use crate::drivers::record::handle::Medium;
use crate::drivers::record::{striped, wait};

/// The longest sleep until a medium has taken its label.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Why a recording can't begin.
#[derive(Debug)]
pub enum Refused {
    /// The media can't hold the requested recording: the reason.
    Unfit(String),
    /// One of the media refuses it.
    Medium {
        /// Which, counted from 0.
        member: usize,
        /// The reason. `WouldBlock` if another process records there; `AlreadyExists` if the former
        /// content was not to be overwritten.
        error: io::Error,
    },
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Medium { member: 0, error }
    }
}

/// The media of a recording: chunk i lies on medium i modulo their number. A single one has the
/// chunks alone.
pub(in crate::drivers::record) struct Stripes {
    members: Vec<Sink>,
    chunk: u64,
    medium: Medium,
    /// Members that have not made durable yet the bytes that the recorder named.
    syncing: usize,
    synced: Result<(), Fault>,
    ended: VecDeque<Input>,
}

impl Stripes {
    /// Takes the media for the recording `name`, with chunks of `chunk` bytes. With `overwrite`,
    /// the former content is gone.
    pub(in crate::drivers::record) fn create(
        targets: Vec<Target<'_>>,
        overwrite: bool,
        (name, chunk): ([u8; 16], u32),
    ) -> Result<Self, Refused> {
        let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
        if !(1..=MEMBERS_MAX).contains(&count) {
            let why = format!("a recording lies on {count} media: expected 1 to {MEMBERS_MAX}");
            return Err(Refused::Unfit(why));
        }
        let mut members = Vec::new();
        for (member, target) in targets.into_iter().enumerate() {
            members
                .push(Sink::create(target, overwrite, 0).map_err(|error| Refused::Medium { member, error })?);
        }
        // One that refuses costs the others nothing.
        for (member, sink) in members.iter_mut().enumerate() {
            sink.empty().map_err(|error| Refused::Medium { member, error })?;
        }
        let models: Vec<_> = members.iter().map(|sink| sink.medium().model.clone()).collect();
        let mut medium = Medium { bytes: 0, model: models.join(" + ") };
        medium.bytes = members.iter().map(|sink| sink.medium().bytes).sum();
        if models.iter().all(String::is_empty) {
            medium.model.clear();
        }
        if count > 1 {
            for (index, sink) in (0..).zip(&mut members) {
                let label = striped::label(name, chunk, Member { index, count });
                write_label(sink, Pool::new(0).copy(&label))
                    .map_err(|error| Refused::Medium { member: index as usize, error })?;
            }
        }
        Ok(Self::over(members, chunk, medium))
    }

    /// One medium, whose places are those of the writes.
    pub(in crate::drivers::record) fn single(sink: Sink, chunk: u32) -> Self {
        let medium = sink.medium().clone();
        Self::over(vec![sink], chunk, medium)
    }

    fn over(members: Vec<Sink>, chunk: u32, medium: Medium) -> Self {
        let (chunk, ended) = (u64::from(chunk), VecDeque::new());
        Self { members, chunk, medium, syncing: 0, synced: Ok(()), ended }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// The common properties of the media.
    pub(in crate::drivers::record) const fn medium(&self) -> &Medium {
        &self.medium
    }

    /// How many slots there are, if a medium can't grow.
    pub(in crate::drivers::record) fn slots(&self) -> Option<u64> {
        let count = self.count();
        let least = self.members.iter().filter_map(Sink::bytes).min()? / self.chunk;
        Some(if count == 1 { least } else { least.saturating_sub(1) * u64::from(count) })
    }

    /// Lets the media know that the recording will have this many bytes at most.
    pub(in crate::drivers::record) fn expect(&mut self, bytes: u64) {
        let share = bytes.div_ceil(self.members.len() as u64);
        self.members.iter_mut().for_each(|sink| sink.expect(share));
    }

    /// The descriptors that are readable when something has ended.
    pub(in crate::drivers::record) fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        self.members.iter().filter_map(Sink::poll_fd)
    }

    /// After what time they have to be looked at, although their descriptors report nothing.
    pub(in crate::drivers::record) fn patience(&self) -> Option<Nanos> {
        self.members.iter().filter_map(Sink::patience).min()
    }

    pub(in crate::drivers::record) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        let (member, slot) = Member::place(self.count(), offset / self.chunk);
        self.members[member as usize].write(name, slot * self.chunk + offset % self.chunk, data);
    }

    /// Makes the written bytes durable on every medium.
    pub(in crate::drivers::record) fn sync(&mut self) {
        (self.syncing, self.synced) = (self.members.len(), Ok(()));
        self.members.iter_mut().for_each(Sink::sync);
    }

    /// Starts what waits, as far as the media take it; with `more`, as [`Sink::submit`] says.
    pub(in crate::drivers::record) fn submit(&mut self, more: bool) -> io::Result<bool> {
        self.members.iter_mut().try_fold(false, |busy, member| Ok(member.submit(more)? | busy))
    }

    /// The next write that has ended, or the sync once every medium is done with it.
    pub(in crate::drivers::record) fn next_ended(&mut self) -> Option<Input> {
        if self.ended.is_empty() {
            for sink in &mut self.members {
                self.ended.extend(std::iter::from_fn(|| sink.next_ended()));
            }
        }
        while let Some(input) = self.ended.pop_front() {
            let Input::Synced(result) = input else { return Some(input) };
            self.synced = self.synced.and(result);
            self.syncing = self.syncing.saturating_sub(1);
            if self.syncing == 0 {
                return Some(Input::Synced(self.synced));
            }
        }
        None
    }
}

/// Writes the label of a medium, and waits for it.
fn write_label(sink: &mut Sink, label: Buffer) -> io::Result<()> {
    sink.write(0, 0, label);
    loop {
        sink.submit(false)?;
        match sink.next_ended() {
            Some(Input::Written { result: Ok(()), .. }) => return Ok(()),
            Some(Input::Written { result: Err(fault), .. }) => {
                let why = match fault {
                    Fault::Full => "it has no room",
                    Fault::Failed => "it fails to write",
                };
                return Err(io::Error::other(why));
            }
            _ => wait::until_readable(sink.poll_fd().into_iter(), SLEEP_MAX)?,
        }
    }
}
