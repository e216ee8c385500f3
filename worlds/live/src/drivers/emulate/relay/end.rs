//! One end of a connection that passes the model: a socket, and the bytes that wait for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant};
use network_models::network::{Input, Side};
use network_models::tcp::Gone;

use super::pipe::Flow;
use crate::carrier::Received;
use crate::carrier::tcp::Connection;
use crate::drivers::emulate::pace::before;

/// The most bytes in the socket's own outbox; further received bytes wait before the outbox.
const UNSENT_MAX: usize = 256 << 10;
/// How much room in the model is worth a read of the socket, in bytes.
const ROOM_WANTED: usize = 16 << 10;

/// One end of a connection that passes the model.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) socket: Option<Connection>,
    /// Bytes from the socket for which the model has no room yet.
    unsent: Buffer,
    /// Whether the socket gives no more bytes, and whether the model knows.
    read_all: bool,
    is_reported: bool,
    /// When the model last had no room. Bytes that came before enter the model when it has room
    /// again.
    full_at: Instant,
    /// Bytes from the model for the socket, each with the time when they were due.
    arrived: VecDeque<(Instant, Buffer)>,
    /// The due times of the bytes that the socket is given now.
    dues: Vec<Instant>,
    /// The socket's reader lets bytes wait, so how late they are is the reader's affair.
    held: bool,
    /// The number of bytes handed to the socket, and how many of them the model knows to be out.
    handed: u64,
    consumed: u64,
    /// Whether the model gives no more bytes, and whether the socket knows.
    finished: bool,
    closed: bool,
    /// How the model's end has gone, if it has.
    gone: Option<Gone>,
}

impl End {
    pub(super) fn of(socket: Connection) -> Self {
        Self { socket: Some(socket), ..Self::default() }
    }

    /// Bytes have come out of the model, which should have come out at `due`.
    pub(super) fn deliver(&mut self, due: Instant, data: Buffer) {
        self.arrived.push_back((due, data));
    }

    /// No more bytes will come out of the model.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// The model's end is gone.
    pub(super) fn end(&mut self, why: Gone) {
        self.gone = Some(why);
        // Bytes behind a reset do not arrive.
        if why != Gone::Closed {
            self.arrived.clear();
        }
    }

    /// How the model's end has gone, once the socket has everything that came out of the model.
    pub(super) fn is_over(&self) -> Option<Gone> {
        let done = self.arrived.is_empty() && self.socket.as_ref().is_none_or(|socket| socket.unsent() == 0);
        self.gone.filter(|_| done)
    }

    /// Whether nothing waits except for news of the kernel or the model.
    pub(super) fn may_rest(&self) -> bool {
        self.unsent.is_empty()
            && self.arrived.is_empty()
            && self.socket.as_ref().is_none_or(|socket| socket.unsent() == 0)
    }

    pub(super) fn descriptor(&self) -> Option<i32> {
        self.socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Moves bytes from the socket to the model; returns whether there was anything.
    pub(super) fn receive(&mut self, now: Instant, side: Side, flow: &mut Flow<'_>) -> io::Result<bool> {
        let (mut any, connection) = (false, flow.id);
        let mut came = now;
        while self.gone.is_none() {
            if !self.unsent.is_empty() {
                let room = flow.model.room(connection, side, self.unsent.len()).min(self.unsent.len());
                if room == 0 {
                    self.full_at = now;
                    break;
                }
                let data = self.unsent.slice(0..room);
                self.unsent = self.unsent.slice(room..self.unsent.len());
                flow.model.input(came, Input::Send { connection, side, data });
                any = true;
                continue;
            }
            if self.read_all {
                if !self.is_reported {
                    self.is_reported = true;
                    flow.model.input(now, Input::Finish { connection, side });
                    any = true;
                }
                break;
            }
            let Some(socket) = &mut self.socket else { break };
            if flow.model.room(connection, side, ROOM_WANTED) < ROOM_WANTED {
                self.full_at = now;
                break;
            }
            match socket.receive(flow.pool)? {
                Received::Data(data) => {
                    self.unsent = data;
                    // The bytes may have come while this thread was asleep. Their age is counted
                    // back from this moment, which may be later than `now`.
                    came = before(flow.context.clock.now(), socket.age()).max(self.full_at);
                }
                Received::Nothing => break,
                Received::Closed => self.read_all = true,
            }
        }
        Ok(any)
    }

    /// Moves bytes from the model to the socket; returns whether there was anything.
    pub(super) fn send(&mut self, now: Instant, side: Side, flow: &mut Flow<'_>) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        let (mut any, connection) = (false, flow.id);
        loop {
            while socket.unsent() < UNSENT_MAX
                && let Some((due, data)) = self.arrived.pop_front()
            {
                self.handed += data.len() as u64;
                self.dues.push(due);
                socket.send(data).map_err(io::Error::other)?;
            }
            if socket.unsent() > 0 {
                socket.flush()?;
            }
            let waits = socket.unsent() > 0;
            if waits || self.held {
                self.held = waits || !self.arrived.is_empty();
                self.dues.clear();
            } else if !self.dues.is_empty() {
                let written = flow.context.clock.now();
                flow.late.extend(self.dues.drain(..).map(|due| written - due));
            }
            let out = self.handed - socket.unsent() as u64;
            if out == self.consumed {
                break;
            }
            let bytes = usize::try_from(out - self.consumed).expect("less than a window");
            self.consumed = out;
            any = true;
            flow.model.input(now, Input::Consume { connection, side, bytes });
        }
        if self.finished && !self.closed && self.arrived.is_empty() && socket.unsent() == 0 {
            self.closed = true;
            socket.close();
            any = true;
        }
        Ok(any)
    }
}
