//! Concurrent loads on an SSD without a host: reads with writes, several queues.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::{Instant, Nanos, Rng};

use super::Ssd;

/// Commands of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Share of reads in percent; the others are writes.
    pub reads: u8,
    /// Whether the offsets are random, and not one after the other.
    pub random: bool,
    /// Length of a command in bytes.
    pub length: u64,
    /// Number of I/O queues. The region is divided among them, and each goes through its part.
    pub queues: u32,
    /// Number of commands at a time in each queue.
    pub depth: u32,
    /// Number of commands in all queues.
    pub count: u64,
    /// No command begins later than this after the start; `None` means no such limit.
    pub runtime: Option<Nanos>,
    /// Bytes a second at which commands become due; `None` means as fast as possible.
    pub rate: Option<u64>,
    /// Where the region begins, in bytes.
    pub offset: u64,
    /// Length of the region in bytes; each queue's part has room for a command at least.
    pub span: u64,
}

impl Job {
    /// Number of commands that a queue's part of the region has room for.
    fn slots(&self) -> u64 {
        (self.span / u64::from(self.queues.max(1)) / self.length.max(1)).max(1)
    }
}

/// An executed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number of its job.
    pub job: usize,
    /// Whether it is a read.
    pub is_read: bool,
    /// When it was due or, without a rate, when it began.
    pub due: Instant,
    /// When it was complete.
    pub at: Instant,
    /// Number of bytes.
    pub bytes: u64,
}

/// A running job.
struct Running<'a> {
    job: &'a Job,
    rng: Rng,
    /// Number of commands that have begun, in all queues and in each.
    begun: u64,
    by_queue: Vec<u64>,
}

impl Running<'_> {
    /// When the next command is due; `None` if there are no more.
    fn due(&self, start: Instant) -> Option<Instant> {
        if self.begun >= self.job.count {
            return None;
        }
        let after =
            self.job.rate.map_or(Nanos::ZERO, |rate| super::transfer(self.begun * self.job.length, rate));
        let is_late = self.job.runtime.is_some_and(|runtime| after >= runtime);
        (!is_late).then(|| start + after)
    }

    /// Whether the next command reads, and its offset.
    fn next(&mut self, queue: usize) -> (bool, u64) {
        let Job { reads, random, length, offset, .. } = *self.job;
        let slots = self.job.slots();
        let number = self.by_queue[queue];
        self.begun += 1;
        self.by_queue[queue] += 1;
        let is_read = reads >= 100 || reads > 0 && self.rng.below(100) < u64::from(reads);
        let slot = if random { self.rng.below(slots) } else { number % slots };
        (is_read, offset + (queue as u64 * slots + slot) * length)
    }
}

/// Gives `ssd` the commands of `jobs` from `start` on, in order of time, and calls `done` for each
/// when it begins. Returns when the last one is complete.
pub fn run(ssd: &mut Ssd, jobs: &[Job], start: Instant, rng: &Rng, mut done: impl FnMut(Done)) -> Instant {
    let mut running: Vec<_> = jobs
        .iter()
        .enumerate()
        .map(|(number, job)| Running {
            job,
            rng: rng.fork(&format!("job {number}")),
            begun: 0,
            by_queue: vec![0; job.queues as usize],
        })
        .collect();
    // Places for commands: when each is free, its turn among those that are free at once, its job
    // and its queue.
    let mut free = BinaryHeap::new();
    let mut turn = 0_u64;
    for (number, job) in jobs.iter().enumerate() {
        for _ in 0..job.depth {
            for queue in 0..job.queues as usize {
                free.push(Reverse((start, turn, number, queue)));
                turn += 1;
            }
        }
    }
    let before = ssd.parameters().fetch + ssd.parameters().firmware;
    let completion = ssd.parameters().completion;
    let mut end = start;
    while let Some(Reverse((now, _, number, queue))) = free.pop() {
        let one = &mut running[number];
        let Some(due) = one.due(start) else { continue };
        turn += 1;
        if due > now {
            free.push(Reverse((due, turn, number, queue)));
            continue;
        }
        if one.job.runtime.is_some_and(|runtime| now >= start + runtime) {
            continue;
        }
        let (is_read, offset) = one.next(queue);
        let bytes = one.job.length;
        let at = if is_read {
            ssd.read(now + before, offset, bytes, |_, _, _| ())
        } else {
            ssd.write(now + before, offset, bytes)
        } + completion;
        free.push(Reverse((at, turn, number, queue)));
        end = end.max(at);
        let due = if one.job.rate.is_some() { due } else { now };
        done(Done { job: number, is_read, due, at, bytes });
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ssd::Parameters;

    const CHUNK: u64 = 128 << 10;
    const GB: u64 = 1_000_000_000;

    const WRITES: Job = Job {
        reads: 0,
        random: false,
        length: CHUNK,
        queues: 1,
        depth: 32,
        count: u64::MAX,
        runtime: Some(Nanos::from_millis(500)),
        rate: None,
        offset: 100 * GB,
        span: 10 * GB,
    };
    const READS: Job =
        Job { reads: 100, random: true, length: 4096, depth: 4, offset: 0, span: 100 * GB, ..WRITES };

    /// The times of reads, sorted, and the number of bytes written.
    fn played(model: &str, jobs: &[Job]) -> (Vec<Nanos>, u64) {
        let rng = Rng::from_seed(5);
        let mut ssd = Ssd::new(Parameters::named(model).unwrap(), rng.fork("ssd"));
        let (mut times, mut written) = (Vec::new(), 0);
        run(&mut ssd, jobs, Instant::ZERO, &rng, |done| match done.is_read {
            true => times.push(done.at - done.due),
            false => written += done.bytes,
        });
        times.sort_unstable();
        (times, written)
    }

    fn p99(times: &[Nanos]) -> u64 {
        times[times.len() * 99 / 100].get()
    }

    /// 95 of 100 bytes are writes: reads find dies that program, and a controller that is busy.
    #[test]
    fn reads_are_slower_at_the_99th_percentile_beside_writes() {
        for model in Parameters::names() {
            let rate = 50_000_000;
            let reads = Job { rate: Some(rate), ..READS };
            let (alone, _) = played(model, &[reads]);
            let (beside, written) = played(model, &[reads, Job { rate: Some(rate * 19), ..WRITES }]);
            assert_eq!(alone.len(), beside.len(), "{model}");
            assert!(written > rate * 9 && written < rate * 10, "{model}: {written} bytes");
            let (alone, beside) = (p99(&alone), p99(&beside));
            println!("{model}: p99 of reads {alone} ns alone, {beside} ns beside 95 % writes");
            assert!(beside > alone + 2_000, "{model}: {alone} ns alone, {beside} ns beside writes");
        }
    }

    #[test]
    fn queues_share_the_region_and_the_commands() {
        let rng = Rng::from_seed(1);
        let mut ssd = Ssd::new(Parameters::named("tlc").unwrap(), rng.fork("ssd"));
        let job = Job { queues: 4, depth: 2, count: 1_000, span: 1000 * CHUNK, runtime: None, ..WRITES };
        let mut count = 0;
        let end = run(&mut ssd, &[job], Instant::ZERO, &rng, |done| {
            assert!(done.at > done.due && !done.is_read);
            count += 1;
        });
        assert_eq!((count, ssd.accepted()), (1_000, 1_000 * CHUNK));
        let rate = 1_000 * CHUNK * 1_000 / ((end - Instant::ZERO).get() / 1_000_000);
        assert!(rate > GB / 2, "{rate} bytes a second");
    }

    #[test]
    fn a_mix_has_its_share_of_reads_and_a_rate_its_pace() {
        let job = Job { reads: 30, rate: Some(100_000_000), length: 4096, ..READS };
        let (reads, written) = played("970-pro", &[job]);
        let writes = written / 4096;
        let share = reads.len() as u64 * 100 / (reads.len() as u64 + writes);
        assert!((28..=32).contains(&share), "{share} %");
        // Half a second at 100 MB/s.
        let bytes = (reads.len() as u64 + writes) * 4096;
        assert!(bytes.abs_diff(50_000_000) < 10_000, "{bytes} bytes");
    }
}
