//! Runs through the path of a delivery beforehand, to keep it warm.
//!
//! After milliseconds of waiting, a processor's caches have lost the path: the model, the pipe and
//! the kernel's TCP then take 70 µs instead of 5. So while the emulator spins towards a due time,
//! it sends bytes of its own through a model of its own, between sockets of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use engine::{Instant, Nanos, Pool};
use network_models::network::{Config, ConnectionId, Input, Network, Output, Side};
use network_models::{AnyHop, Path, Wire};

use super::model::Model;
use super::relay::pipe::{Flow, Pipe};
use crate::carrier::tcp::{Connection, Listener};
use crate::reactor::Context;

/// The number of bytes that are sent, as many as in a small packet.
const MESSAGE: usize = 64;

/// A network without latency between two pairs of sockets.
#[derive(Debug)]
pub(super) struct Rehearsal {
    model: Model<Network>,
    id: ConnectionId,
    pipe: Pipe,
    /// The ends of the connections that an application would have.
    from: TcpStream,
    to: TcpStream,
    late: Vec<Nanos>,
}

impl Rehearsal {
    /// Sets up the network and its sockets.
    ///
    /// # Errors
    /// When the system has no loopback addresses or descriptors left.
    pub(super) fn new(now: Instant) -> io::Result<Self> {
        let listener = Listener::bind_briefly(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let ((from, near), (to, far)) = (pair(&listener)?, pair(&listener)?);
        let paths = [(); 2].map(|()| Path::new([AnyHop::from(Wire::new(Nanos::ZERO, None))]));
        let mut model = Model::new(Network::new(Config::default(), paths), now);
        let id = model.open(now, Side::Near).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut pipe = Pipe::new(near, now);
        pipe.join(far);
        let mut rehearsal = Self { model, id, pipe, from, to, late: Vec::new() };
        rehearsal.deliver(now);
        Ok(rehearsal)
    }

    /// Sends a message all the way.
    ///
    /// # Errors
    /// When a socket has failed.
    pub(super) fn run(&mut self, context: &Context<'_>, pool: &mut Pool) -> io::Result<()> {
        self.from.write_all(&[0; MESSAGE])?;
        for _ in 0..2 {
            let now = context.clock.now();
            let Self { model, late, .. } = self;
            self.pipe.pump(now, &mut Flow { id: self.id, context, model, pool, late })?;
            self.deliver(now);
        }
        self.late.clear();
        match self.to.read(&mut [0; 2 * MESSAGE]) {
            // The kernel takes its time: the message is there the next time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            result => result.map(|_| ()),
        }
    }

    fn deliver(&mut self, now: Instant) {
        self.model.run_until(now);
        while let Some((due, output)) = self.model.next_output() {
            match output {
                Output::Incoming { .. } => self.model.input(now, Input::Accept(self.id)),
                output => {
                    self.pipe.take(now, due, output);
                }
            }
        }
    }
}

/// Both ends of a connection within this process: the application's, and ours.
fn pair(listener: &Listener) -> io::Result<(TcpStream, Connection)> {
    let ours = TcpStream::connect(listener.address())?;
    ours.set_nodelay(true)?;
    ours.set_nonblocking(true)?;
    let accepted = listener.accept()?.filter(|other| ours.local_addr().is_ok_and(|own| own == other.peer()));
    // A foreign process connected first.
    Ok((ours, accepted.ok_or(io::ErrorKind::ConnectionRefused)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::{Driver, Reactor, Sources, Turn};
    use crate::sys::clock::Clock;

    /// Runs rehearsals until a message has come all the way this often.
    struct Times {
        rehearsal: Rehearsal,
        pool: Pool,
        tries: u32,
        left: u32,
    }

    impl Driver for Times {
        fn start(&mut self, _sources: &Sources) -> io::Result<()> {
            Ok(())
        }

        fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
            let written = self.rehearsal.pipe.busy_at;
            self.rehearsal.run(context, &mut self.pool)?;
            self.tries += 1;
            if self.rehearsal.pipe.busy_at > written {
                self.left -= 1;
            } else {
                // The kernel is behind, and may need this processor.
                std::thread::yield_now();
            }
            assert!(self.tries < 10_000_000, "{} have not passed", self.left);
            Ok(if self.left == 0 { Turn::Done } else { Turn::Busy })
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn on_stop(&mut self, _: Instant) {}
    }

    #[test]
    fn the_way_can_be_gone_again_and_again() {
        let clock = Clock::start();
        let mut reactor = Reactor::new(clock, Nanos::ZERO).unwrap();
        let rehearsal = Rehearsal::new(clock.now()).unwrap();
        let mut times = Times { rehearsal, pool: Pool::default(), tries: 0, left: 2_500 };
        reactor.run(&mut times).unwrap();
    }
}
