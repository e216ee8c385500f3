//! The user's handle of a connection.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::net::IpAddr;

use engine::{Buffer, Pool};
use rdma::{
    Endpoint, Event, Exposure, Key, Limits, PostError, ReceiveRequest, RegisterError, Remote, SendRequest,
    WorkCompletion,
};

use crate::Device;
use crate::device::Slot;

/// A device that its connections share with the driver of its datagrams.
pub type SharedDevice = Rc<RefCell<Device>>;

/// A connection over a [`Device`]. Dropping it ends the connection, and the loans of its memory.
///
/// Commands take effect when the device is settled next. The world does so after the users of
/// connections have worked.
pub struct RoceEndpoint {
    device: SharedDevice,
    slot: Slot,
}

/// The device has its maximum number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyConnections;

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device has its maximum number of connections")
    }
}

impl core::error::Error for TooManyConnections {}

impl RoceEndpoint {
    /// Requests a connection to `port` of `peer`. The peer's user sees the first
    /// [`PRIVATE_DATA_MAX`](rdma::PRIVATE_DATA_MAX) bytes of `private_data`, padded with zeros.
    ///
    /// # Errors
    /// When the device has too many connections.
    pub fn connect(
        device: &SharedDevice,
        peer: IpAddr,
        port: u16,
        private_data: &[u8],
    ) -> Result<Self, TooManyConnections> {
        let slot = device.borrow_mut().connect(peer, port, private_data).ok_or(TooManyConnections)?;
        Ok(Self { device: Rc::clone(device), slot })
    }

    /// The next connection that a peer has requested. Its first event is [`Event::Requested`].
    pub fn next_requested(device: &SharedDevice) -> Option<Self> {
        let slot = device.borrow_mut().next_requested()?;
        Some(Self { device: Rc::clone(device), slot })
    }

    /// Whether there are events or completions to poll.
    pub fn has_news(&self) -> bool {
        let mut device = self.device.borrow_mut();
        let connection = device.peek(self.slot);
        connection.is_some_and(|one| !one.events.is_empty() || !one.completions.borrow().is_empty())
    }

    /// The address of the peer.
    pub fn peer(&self) -> Option<IpAddr> {
        self.device.borrow_mut().peek(self.slot).map(|connection| connection.peer)
    }
}

impl Endpoint for RoceEndpoint {
    fn limits(&self) -> Limits {
        let device = self.device.borrow();
        let config = device.config();
        Limits {
            send_requests: config.send_depth,
            receive_requests: config.receive_depth,
            message_bytes: u32::try_from(Pool::LENGTH_MAX).unwrap_or(u32::MAX),
            invalidate: true,
            immediate: true,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.device.borrow_mut().peek(self.slot)?.events.pop_front()
    }

    fn accept(&mut self, private_data: &[u8]) {
        let mut device = self.device.borrow_mut();
        device.with(self.slot, |connection, now, shared| connection.accept(now, private_data, shared));
    }

    fn reject(&mut self, private_data: &[u8]) {
        let mut device = self.device.borrow_mut();
        device.with(self.slot, |connection, _, shared| connection.reject(private_data, shared));
    }

    fn disconnect(&mut self) {
        let mut device = self.device.borrow_mut();
        device.with(self.slot, |connection, now, shared| connection.disconnect(now, shared));
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.device.borrow_mut().post_send(self.slot, request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.device.borrow_mut().post_receive(self.slot, request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.device.borrow_mut().peek(self.slot)?.completions.borrow_mut().poll()
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        let mut device = self.device.borrow_mut();
        let owner = device.peek(self.slot).map(|connection| connection.pair.id());
        let owner = owner.ok_or(RegisterError::TooMany)?;
        device.domain().borrow_mut().register(owner, exposure)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        let mut device = self.device.borrow_mut();
        let Some(owner) = device.peek(self.slot).map(|connection| connection.pair.id()) else { return false };
        device.domain().borrow_mut().peek(owner, key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        self.device.borrow_mut().deregister(self.slot, key)
    }
}

impl Drop for RoceEndpoint {
    fn drop(&mut self) {
        self.device.borrow_mut().abandon(self.slot);
    }
}

impl fmt::Debug for RoceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoceEndpoint").field("slot", &self.slot).finish_non_exhaustive()
    }
}
