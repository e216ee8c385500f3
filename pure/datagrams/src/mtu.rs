//! How long datagrams may be: the search for the path's MTU (RFC 8899).

/// Bytes that every path carries: the two ends have met with datagrams of this length.
pub(crate) const LEAST: usize = crate::MEETING_BYTES;
/// Lengths to try, in rising order: the rest of 1,500 and 9,000 bytes behind the headers of IPv6
/// and of IPv4, of bare frames, and the maximum of UDP.
const CANDIDATES: [usize; 8] = [1452, 1472, 1500, 4000, 8952, 8972, 9000, 65_507];
/// How often a length is tried before it counts as too long.
const TRIES: u32 = 3;

/// The search for the longest datagrams that pass.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// The longest that has passed.
    current: usize,
    /// The world's limit on the length of a datagram.
    most: usize,
    /// The length under trial, and how often it got lost.
    trial: Option<(usize, u32)>,
    is_under_way: bool,
}

impl PathMtu {
    /// Begins the search; the world's datagrams have `most` bytes at most.
    pub(crate) fn new(most: usize) -> Self {
        let mut path = Self { current: LEAST, most, trial: None, is_under_way: false };
        path.trial = path.above(LEAST);
        path
    }

    /// The next length to try above `length`: a usual one, or the longest of all.
    fn above(&self, length: usize) -> Option<(usize, u32)> {
        let usual = CANDIDATES.into_iter().find(|one| *one > length && *one <= self.most);
        usual.or_else(|| (self.most > length).then_some(self.most)).map(|length| (length, 0))
    }

    /// The longest datagrams that pass for certain.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    /// The length of a probe to be sent now.
    pub(crate) fn poll_probe(&mut self) -> Option<usize> {
        let (length, _) = self.trial?;
        (!core::mem::replace(&mut self.is_under_way, true)).then_some(length)
    }

    /// Notes the arrival of a probe of `length` bytes.
    pub(crate) fn on_came(&mut self, length: usize) {
        if self.trial.is_some_and(|(trial, _)| trial == length) {
            (self.current, self.is_under_way) = (length, false);
            self.trial = self.above(length);
        }
    }

    /// A probe of `length` bytes got lost.
    pub(crate) fn on_lost(&mut self, length: usize) {
        if let Some((trial, tries)) = self.trial
            && trial == length
        {
            self.is_under_way = false;
            self.trial = (tries + 1 < TRIES).then_some((length, tries + 1));
        }
    }

    /// Restarts the search below the previous length, after a long time without any
    /// acknowledgement: the path may have become narrower.
    pub(crate) fn on_outage(&mut self) {
        (self.current, self.is_under_way) = (LEAST, false);
        self.trial = self.above(LEAST);
    }
}
