//! Dies, their planes and their channels: reads, programs that reads suspend, and erases.

use engine::{Instant, Nanos, Rng};

use super::{Parameters, around, transfer};

/// Number of bytes that are transferred to the controller at once: the size of a small read.
pub(super) const SECTOR: u64 = 4096;
/// A row number that no plane has.
const NO_ROW: u64 = u64::MAX;

/// A plane of a die, with the register that holds the page it read last.
#[derive(Clone, Copy, Debug)]
struct Plane {
    /// When the last read of the array ends.
    ready: Instant,
    /// The row whose page is in the register.
    row: u64,
}

/// A part of a sector that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectorPart {
    /// Offset of the part in the drive, in bytes.
    pub(super) offset: u64,
    /// Length of the part in bytes.
    pub(super) length: u64,
    /// Rate of the path to the host, in bytes a second.
    pub(super) path_rate: u64,
}

/// The flash behind the controller.
#[derive(Debug)]
pub(super) struct Flash {
    planes: Vec<Plane>,
    channels: Vec<Instant>,
    /// When the programs and erases of each die end.
    programs: Vec<Instant>,
    /// Number of rows that each die has programmed since its last erase.
    rows: Vec<u32>,
    /// The die of the next program.
    next: usize,
    /// When the controller's read path to the host is free.
    path: Instant,
}

impl Flash {
    pub(super) fn new(parameters: &Parameters) -> Self {
        let dies = (parameters.channels * parameters.dies) as usize;
        Self {
            planes: vec![Plane { ready: Instant::ZERO, row: NO_ROW }; dies * parameters.planes as usize],
            channels: vec![Instant::ZERO; parameters.channels as usize],
            programs: vec![Instant::ZERO; dies],
            rows: vec![0; dies],
            next: 0,
            path: Instant::ZERO,
        }
    }

    /// Reads `part`; calls `piece` with the time, the offset within the part and the length of each
    /// piece, and returns when all pieces are available.
    pub(super) fn read(
        &mut self,
        parameters: &Parameters,
        rng: &mut Rng,
        now: Instant,
        part: SectorPart,
        mut piece: impl FnMut(Instant, u64, u64),
    ) -> Instant {
        let SectorPart { offset, length, path_rate } = part;
        let sector = offset / SECTOR;
        let planes = self.planes.len() as u64;
        let plane = usize::try_from(sector % planes).expect("a plane");
        let row = sector / planes / (parameters.page / SECTOR).max(1);
        let ready = self.array(parameters, rng, now, plane, row);
        let channel = plane % self.channels.len();
        // Channel and path serve sectors in the order of the requests, and a sector that still
        // waits for its array does not block them.
        let begin = now.max(self.channels[channel]);
        self.channels[channel] = begin + transfer(length, parameters.channel_rate);
        self.path = now.max(self.path) + transfer(length, path_rate);
        let (mut done, mut when) = (0, ready);
        while done < length {
            let part = u64::from(parameters.piece).min(length - done);
            done += part;
            when = ready.max(begin) + transfer(done, parameters.channel_rate);
            when = when.max(self.path);
            piece(when, done - part, part);
        }
        when
    }

    /// When the page of `row` is in the register of `plane`.
    fn array(
        &mut self,
        parameters: &Parameters,
        rng: &mut Rng,
        now: Instant,
        plane: usize,
        row: u64,
    ) -> Instant {
        // The sum of two even distributions is triangular: values far from the mean are rare.
        let spread = parameters.array_spread;
        let varied = rng.below(spread.get() + 1) + rng.below(spread.get() + 1);
        if self.planes[plane].row == row {
            return now.max(self.planes[plane].ready);
        }
        let die = plane % self.programs.len();
        let mut begin = now.max(self.planes[plane].ready);
        let programs = self.programs[die];
        let time = around(parameters.array_read, Nanos::new(varied), spread);
        if programs > begin {
            begin = (begin + parameters.suspend).min(programs);
            self.programs[die] = programs + parameters.suspend + time;
        }
        self.planes[plane] = Plane { ready: begin + time, row };
        begin + time
    }

    /// Programs a row of the next die in `time`, not before `now`, and keeps the die for `extra`
    /// time after it; returns when the row is programmed.
    pub(super) fn program(
        &mut self,
        parameters: &Parameters,
        now: Instant,
        time: Nanos,
        extra: Nanos,
    ) -> Instant {
        let die = self.next;
        self.next = (self.next + 1) % self.programs.len();
        self.rows[die] += 1;
        let mut begin = now.max(self.programs[die]);
        if self.rows[die] >= parameters.block_rows {
            self.rows[die] = 0;
            begin = begin + parameters.erase;
        }
        let end = begin + time;
        self.programs[die] = end + extra;
        let dies = self.programs.len();
        for plane in self.planes.iter_mut().skip(die).step_by(dies) {
            plane.row = NO_ROW;
        }
        end
    }

    /// No die programs for another `pause`.
    pub(super) fn pause(&mut self, now: Instant, pause: Nanos) {
        for end in &mut self.programs {
            *end = now.max(*end) + pause;
        }
    }

    /// When all programs and erases end.
    pub(super) fn idle(&self) -> Instant {
        self.programs.iter().copied().max().unwrap_or(Instant::ZERO)
    }
}
