//! A host, as seen from its root port's link: root complex, memory and driver.

use std::collections::VecDeque;

use engine::{Instant, Nanos};

/// Length of a page in bytes.
const PAGE: u64 = 4096;
/// Number of pages whose translation is kept, as in a small IOTLB. Older ones are forgotten.
const TRANSLATIONS_MAX: usize = 64;

/// The times of a host, and the size of its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time from the end of a device's read to the start of its completion, for a page that was
    /// read recently or that only the CPU has just written, like a submission queue's.
    pub memory_read: Nanos,
    /// Time from the end of a device's read to the start of its completion, for the first read of a
    /// page that was mapped for this transfer. The page's translation must be walked and its lines
    /// fetched, and further reads of the page wait for it.
    pub memory_read_first: Nanos,
    /// The largest completion in bytes: hosts split at 64, 128 or 256.
    pub completion_size: u32,
    /// Time from an interrupt's arrival to the write of the completion-queue head doorbell after a
    /// read: interrupt entry, the end of the request, and the wake-up of the waiting thread.
    pub complete_read: Nanos,
    /// Time from an interrupt's arrival to the write of the completion-queue head doorbell after a
    /// write.
    pub complete_write: Nanos,
    /// Time from the submission of a command to its doorbell: system call, block layer, driver.
    pub submit: Nanos,
}

impl Parameters {
    /// The AMD Ryzen 3200G under Debian 9 of the published time lines (published-figures,
    /// nvme-tsn).
    ///
    /// - `memory_read`: `sqe_fetch_rtt` 2232 ns from the MRd's start, less its 12 ns on the link.
    /// - `memory_read_first`: `data_first_cpld_after` 6724 ns, less the same.
    /// - `complete_write`: `cq_head_doorbell` 51,500 - `msix_interrupt` 34,956 = 16,544 ns.
    /// - `complete_read`: `cq_head_doorbell` 99,708 less the end of the data phase at 86,444 and
    ///   less the time which the SSD takes from the end of a command's data to its interrupt (taken
    ///   from the write).
    /// - `submit`: not in the figures, which begin at the doorbell; an estimate of 3 µs for a
    ///   system call with direct I/O.
    pub const RYZEN_3200G: Self = Self {
        memory_read: Nanos::new(2_220),
        memory_read_first: Nanos::new(6_712),
        completion_size: 128,
        complete_read: Nanos::new(12_500),
        complete_write: Nanos::new(16_494),
        submit: Nanos::new(3_000),
    };
}

/// Computes when a host's memory answers devices.
#[derive(Debug)]
pub struct Memory {
    parameters: Parameters,
    /// Pages that are translated or being translated, each with the time from which on it answers
    /// at once.
    pages: VecDeque<(u64, Instant)>,
    /// When the last completion leaves: completions leave in the order of their requests.
    last: Instant,
}

impl Memory {
    /// The memory of a host whose queues were read before.
    pub const fn new(parameters: Parameters) -> Self {
        Self { parameters, pages: VecDeque::new(), last: Instant::ZERO }
    }

    /// Maps a range again, so that the first read of each of its pages takes long.
    pub fn map(&mut self, address: u64, length: u64) {
        let pages = address / PAGE..=(address + length.max(1) - 1) / PAGE;
        self.pages.retain(|(page, _)| !pages.contains(page));
    }

    /// When the answer to a read that arrived at `now` leaves. `queue` says whether the page
    /// belongs to a queue.
    pub fn read(&mut self, now: Instant, address: u64, queue: bool) -> Instant {
        let ready = now + self.parameters.memory_read;
        let page = address / PAGE;
        let at = if queue {
            ready
        } else if let Some((_, since)) = self.pages.iter().find(|(known, _)| *known == page) {
            ready.max(*since)
        } else {
            let since = now + self.parameters.memory_read_first;
            if self.pages.len() == TRANSLATIONS_MAX {
                self.pages.pop_front();
            }
            self.pages.push_back((page, since));
            since
        };
        self.last = self.last.max(at);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_read_of_a_page_takes_long_and_the_others_wait_for_it() {
        let parameters = Parameters::RYZEN_3200G;
        let mut memory = Memory::new(parameters);
        let at = |nanos| Instant::from_nanos(nanos);
        assert_eq!(memory.read(at(0), 0x1000, true), at(0) + parameters.memory_read);
        let first = memory.read(at(10_000), 0x5000, false);
        assert_eq!(first, at(10_000) + parameters.memory_read_first);
        assert_eq!(memory.read(at(10_012), 0x5100, false), first);
        assert_eq!(memory.read(at(30_000), 0x5200, false), at(30_000) + parameters.memory_read);
        memory.map(0x5000, 4096);
        assert_eq!(memory.read(at(50_000), 0x5200, false), at(50_000) + parameters.memory_read_first);
    }
}
