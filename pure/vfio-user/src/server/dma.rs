//! Accesses to the client's memory by message, split into messages that the client accepts, with a
//! limited number of them outstanding.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Instant};

use super::output::Cookie;
use crate::limits::{DMA_MAX, DMA_WINDOW};
use crate::wire::Command;

/// An access to the client's memory, and its progress.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) cookie: Cookie,
    pub(super) address: u64,
    pub(super) length: usize,
    /// The data to write; `None` for a read.
    pub(super) data: Option<Buffer>,
    sent: usize,
    arrived: usize,
}

impl Job {
    pub(super) const fn new(cookie: Cookie, address: u64, length: usize, data: Option<Buffer>) -> Self {
        Self { cookie, address, length, data, sent: 0, arrived: 0 }
    }
    pub(super) const fn command(&self) -> Command {
        if self.data.is_some() { Command::DmaWrite } else { Command::DmaRead }
    }
}

/// A message that the client has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) id: u16,
    job: usize,
    /// Offset of the message's data in the job.
    pub(super) offset: usize,
    pub(super) length: usize,
    deadline: Instant,
}

/// All accesses that wait or are outstanding.
#[derive(Debug, Default)]
pub(super) struct Dma {
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Slots of jobs that have more to send, in order.
    waiting: VecDeque<usize>,
    /// Unanswered messages in the order of sending, which is also that of their deadlines.
    flights: VecDeque<Flight>,
    next_id: u16,
}

impl Dma {
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.jobs.len() == DMA_MAX
    }

    pub(super) fn push(&mut self, job: Job) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        assert!(slot < DMA_MAX, "an access was taken although there was no room");
        self.jobs[slot] = Some(job);
        self.waiting.push_back(slot);
    }

    /// The next message to send, with at most `data_max` bytes, if the window is open.
    pub(super) fn launch(&mut self, data_max: usize, deadline: Instant) -> Option<(Flight, &Job)> {
        if self.flights.len() == DMA_WINDOW {
            return None;
        }
        let slot = *self.waiting.front()?;
        while self.flights.iter().any(|flight| flight.id == self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let job = self.jobs[slot].as_mut().expect("a waiting access has a slot");
        let length = (job.length - job.sent).min(data_max);
        let flight = Flight { id: self.next_id, job: slot, offset: job.sent, length, deadline };
        job.sent += length;
        if job.sent == job.length {
            self.waiting.pop_front();
        }
        self.next_id = self.next_id.wrapping_add(1);
        self.flights.push_back(flight);
        Some((flight, job))
    }

    /// The message called `id`, and the job that it belongs to. `None` if its answer is not
    /// expected (any more).
    pub(super) fn find(&self, id: u16) -> Option<(Flight, &Job)> {
        let flight = self.flights.iter().find(|flight| flight.id == id)?;
        Some((*flight, self.jobs[flight.job].as_ref().expect("a message is a part of something")))
    }

    /// Notes that the message has been answered. Returns whether the whole access is complete.
    pub(super) fn land(&mut self, flight: Flight) -> bool {
        self.flights.retain(|other| other.id != flight.id);
        let job = self.jobs[flight.job].as_mut().expect("a message is a part of something");
        job.arrived += flight.length;
        let done = job.arrived == job.length;
        if done {
            self.remove(flight.job);
        }
        done
    }

    /// Abandons the access that the message belongs to. Later answers are ignored.
    pub(super) fn fail(&mut self, flight: Flight) -> Option<Cookie> {
        self.flights.retain(|other| other.job != flight.job);
        self.waiting.retain(|slot| *slot != flight.job);
        self.remove(flight.job).map(|job| job.cookie)
    }

    fn remove(&mut self, slot: usize) -> Option<Job> {
        let job = self.jobs[slot].take();
        self.free.push(slot);
        job
    }

    /// Abandons all accesses and returns their cookies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Cookie> + use<> {
        let jobs = core::mem::take(self).jobs;
        jobs.into_iter().flatten().map(|job| job.cookie)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.flights.front().map(|flight| flight.deadline)
    }
    /// A message whose answer is overdue.
    pub(super) fn overdue(&self, now: Instant) -> Option<Flight> {
        self.flights.front().filter(|flight| flight.deadline <= now).copied()
    }
}
