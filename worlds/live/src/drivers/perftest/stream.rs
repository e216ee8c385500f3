//! The TCP connections of the ends of iWARP.

use engine::{Engine, Instant};
use rdma::SharedPool;
use rdma::measure::{Client, Server};

use crate::drivers::fabrics::{Received, Socket};
use crate::reactor::Shell;

/// How often the socket is read before the received bytes are looked at.
const RECEIVES_MAX: usize = 16;

/// A measurement that has its ends of iWARP within.
pub(super) trait Ends {
    fn ends(&self) -> &[iwarp::Connection];
    fn ends_mut(&mut self) -> &mut [iwarp::Connection];
}

impl Ends for Server<iwarp::Connection> {
    fn ends(&self) -> &[iwarp::Connection] {
        core::slice::from_ref(self.endpoint())
    }

    fn ends_mut(&mut self) -> &mut [iwarp::Connection] {
        core::slice::from_mut(self.endpoint_mut())
    }
}

impl Ends for Client<iwarp::Connection> {
    fn ends(&self) -> &[iwarp::Connection] {
        self.endpoints()
    }

    fn ends_mut(&mut self) -> &mut [iwarp::Connection] {
        self.endpoints_mut()
    }
}

/// A measurement over iWARP as an engine. Inputs and outputs have the number of their end.
#[derive(Debug)]
pub(super) struct OverIwarp<M>(pub(super) M);

impl<M: Ends> Engine for OverIwarp<M> {
    type Input<'a> = (usize, iwarp::Input);
    type Output = (usize, iwarp::Output);

    fn handle_input(&mut self, now: Instant, (which, input): (usize, iwarp::Input)) {
        if let Some(end) = self.0.ends_mut().get_mut(which) {
            end.handle_input(now, input);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.ends_mut().iter_mut().for_each(|end| end.handle_timeout(now));
    }

    fn poll_output(&mut self) -> Option<(usize, iwarp::Output)> {
        let mut ends = self.0.ends_mut().iter_mut().enumerate();
        ends.find_map(|(which, end)| Some((which, end.poll_output()?)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.ends().iter().filter_map(Engine::poll_timeout).min()
    }
}

/// A socket, and whether nothing passes any more.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: Socket,
    /// The end knows that the stream is over.
    is_closed: bool,
    /// The end has nothing more to send than the contents of the outbox.
    is_ending: bool,
}

impl Stream {
    pub(super) const fn new(socket: Socket) -> Self {
        Self { socket, is_closed: false, is_ending: false }
    }

    /// Gives the end with the number `which` received bytes. Returns whether there were any.
    pub(super) fn receive<M: Ends>(
        &mut self,
        engine: &mut OverIwarp<M>,
        which: usize,
        pool: &SharedPool,
        now: Instant,
    ) -> bool {
        let mut busy = false;
        for _ in 0..RECEIVES_MAX {
            let Some(end) = engine.0.ends_mut().get_mut(which).filter(|_| !self.is_closed) else { break };
            let received = self.socket.receive(&mut pool.borrow_mut(), end.landing());
            match received {
                Ok(Received::Data { landed, bytes, is_all }) => {
                    if landed > 0 {
                        end.landed(landed);
                    }
                    if !bytes.is_empty() {
                        engine.handle_input(now, (which, iwarp::Input::Received(bytes)));
                    }
                    busy = true;
                    if is_all {
                        break;
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::Closed) | Err(_) => self.close(engine, which, now),
            }
        }
        busy
    }

    /// Sends the bytes of the end with the number `which`. Returns whether anything has changed.
    fn send<M: Ends>(&mut self, engine: &mut OverIwarp<M>, which: usize, now: Instant) -> bool {
        let mut busy = false;
        while !self.is_closed
            && let Some(end) = engine.0.ends_mut().get_mut(which)
            && !end.outbox().is_empty()
        {
            match self.socket.send(end.outbox()) {
                Ok(0) => break,
                Ok(count) => end.sent(count),
                Err(_) => self.close(engine, which, now),
            }
            busy = true;
        }
        busy
    }

    /// Whether the connection is over, and everything was sent.
    pub(super) fn is_over(&self, end: &iwarp::Connection) -> bool {
        self.is_closed || self.is_ending && end.outbox().is_empty()
    }

    fn close<M: Ends>(&mut self, engine: &mut OverIwarp<M>, which: usize, now: Instant) {
        self.is_closed = true;
        engine.handle_input(now, (which, iwarp::Input::Closed));
    }
}

/// The streams of the ends of a measurement, in their order.
pub(super) struct Streams<'a>(pub(super) &'a mut [Stream]);

impl<M: Ends> Shell<OverIwarp<M>> for Streams<'_> {
    fn pass(&mut self, _: Instant, (which, output): (usize, iwarp::Output), _: &mut OverIwarp<M>) {
        let iwarp::Output::Close = output;
        if let Some(stream) = self.0.get_mut(which) {
            stream.is_ending = true;
        }
    }

    fn answer(&mut self, now: Instant, engine: &mut OverIwarp<M>) -> bool {
        let mut busy = false;
        for (which, stream) in self.0.iter_mut().enumerate() {
            busy |= stream.send(engine, which, now);
        }
        busy
    }
}
