//! Pings of `rping -s`.

use engine::{Buffer, Instant};

use super::{MESSAGE_BYTES, emit};
use crate::measure::client::{Heard, Talk};
use crate::measure::{DATA, Failure, NOTICE, NOTICE_LENGTH, Output, Test, notice};
use crate::{Done, Endpoint, Event, Exposure, ReceiveRequest, Remote, SendRequest, SharedPool};

/// The memory of a ping.
#[derive(Clone, Copy, Debug)]
struct Lent {
    /// The memory that the server reads.
    source: Remote,
    /// The memory to which it writes the same bytes back.
    sink: Remote,
}

/// A client's dialogue with `rping -s`.
#[derive(Debug)]
pub(in crate::measure) struct Pings {
    test: Test,
    data: Buffer,
    lent: Option<Lent>,
    /// The client has sent the server the region to write to.
    is_returning: bool,
    done: u32,
    started: Instant,
    began: Instant,
}

impl Pings {
    pub(in crate::measure) fn new(test: Test, pool: &SharedPool) -> Self {
        let data = text(pool, test.size);
        let [started, began] = [Instant::ZERO; 2];
        Self { test, data, lent: None, is_returning: false, done: 0, started, began }
    }

    fn start(&mut self, end: &mut impl Endpoint, now: Instant) -> Result<(), Failure> {
        let source = end.register(Exposure::Read(self.data.clone())).map_err(|_| Failure::NoMemory)?;
        let sink = end.register(Exposure::Write(self.test.size)).map_err(|_| Failure::NoMemory)?;
        self.lent = Some(Lent { source, sink });
        self.started = now;
        self.ping(end, now, source)
    }

    /// Names the memory of the next ping.
    fn ping(&mut self, end: &mut impl Endpoint, now: Instant, source: Remote) -> Result<(), Failure> {
        self.is_returning = false;
        self.began = now;
        send_region(end, source)
    }

    /// The server has performed the last access that it was asked for.
    fn on_message(&mut self, end: &mut impl Endpoint, now: Instant) -> Heard {
        let Lent { source, sink } = self.lent.ok_or(Failure::Nonsense)?;
        receive(end)?;
        if !self.is_returning {
            self.is_returning = true;
            return send_region(end, sink).map(|()| None);
        }
        self.done += 1;
        let length = now - self.began;
        if self.done < self.test.iterations {
            self.ping(end, now, source)?;
        } else if end.deregister(sink.key).is_none_or(|written| written != self.data) {
            return Err(Failure::Nonsense);
        }
        Ok(Some(Output::Sample(length)))
    }
}

impl<E: Endpoint> Talk<E> for Pings {
    fn begin(&mut self, end: &mut E) -> Result<(), Failure> {
        receive(end)
    }

    fn on_event(&mut self, ends: &mut [E], which: usize, now: Instant, event: &Event) -> Heard {
        match event {
            Event::Established { .. } => self.start(&mut ends[which], now).map(|()| None),
            Event::Rejected { .. } => Err(Failure::Refused(None)),
            Event::Disconnected(why) => Err(Failure::Disconnected(*why)),
            Event::Requested { .. } => Err(Failure::Nonsense),
        }
    }

    fn on_done(&mut self, ends: &mut [E], which: usize, now: Instant, (_, done): (u64, Done)) -> Heard {
        match done {
            Done::Received { data, .. } if data.len() == MESSAGE_BYTES => {
                self.on_message(&mut ends[which], now)
            }
            Done::Received { .. } => Err(Failure::Nonsense),
            Done::Sent | Done::Written | Done::Read(_) => Ok(None),
        }
    }

    fn poll(&mut self, _ends: &mut [E], now: Instant) -> Heard {
        let is_done = self.done == self.test.iterations;
        Ok(is_done.then(|| Output::Finished(now - self.started)))
    }
}

/// `size` bytes of text. rping writes back only the bytes up to the first zero.
fn text(pool: &SharedPool, size: u32) -> Buffer {
    let mut place = pool.borrow_mut().take(size as usize);
    for (byte, letter) in place.iter_mut().zip((b'A'..=b'z').cycle()) {
        *byte = letter;
    }
    if let Some(last) = place.last_mut() {
        *last = 0;
    }
    pool.borrow_mut().seal(place)
}

fn receive(end: &mut impl Endpoint) -> Result<(), Failure> {
    end.post_receive(ReceiveRequest { id: DATA, length_max: NOTICE_LENGTH }).map_err(Failure::Post)
}

fn send_region(end: &mut impl Endpoint, remote: Remote) -> Result<(), Failure> {
    let request = SendRequest { id: NOTICE, operation: notice(&emit(remote)), signalled: true };
    end.post_send(request).map_err(Failure::Post)
}
