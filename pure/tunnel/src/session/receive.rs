//! Handles the bytes that come in over an open connection.

use core::ops::Range;

use engine::Buffer;
use pcie::wire::Packet;

use super::{Arrival, Connection, DownReason, Item, LossReason, Output, ProtocolError, Session, Timer};
use crate::credits::{Cost, cost};
use crate::frame::{
    AHEAD_HEAD, CloseCode, Frame, FrameError, FrameHeader, FrameKind, HEADER_LENGTH, Pong, RefuseCode,
    Registers, ResetPhase, Role, Tally, parse_tlp,
};

/// After this many numbered frames, an acknowledgement no longer waits for company.
const ACKNOWLEDGE_FRAMES: u32 = 64;
/// After this many bytes of numbered frames, an acknowledgement no longer waits for company.
const ACKNOWLEDGE_BYTES: usize = 128 << 10;

impl Session {
    pub(super) fn on_received(&mut self, bytes: Buffer) {
        self.catch_up();
        if !matches!(self.connection, Connection::Greeting | Connection::Open) {
            // These bytes are the rest of a connection that this end has given up.
            return;
        }
        self.last_heard = self.now;
        self.statistics.bytes_received += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.reader.push(bytes);
        self.read(false);
    }

    /// Handles everything that has been received and waits to be polled, before anything else
    /// happens to the session.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.tlp_waits {
            self.read(true);
        }
    }

    /// Handles the frames that have arrived, up to a TLP that can be read in place when it is
    /// polled. With `all`, handles such TLPs and all frames behind them, too.
    fn read(&mut self, all: bool) {
        loop {
            // Handling a frame may end the connection, and the reader is then empty.
            self.tlp_waits = !all && self.connection == Connection::Open && self.reader.has_tlp();
            if self.tlp_waits {
                return;
            }
            let result = match (self.reader.next(&mut self.pool), self.connection) {
                (Ok(None), _) => break,
                (frame, Connection::Greeting) => {
                    let block = self.reader.block();
                    self.on_greeting(
                        frame.map(|frame| frame.map(|(header, body)| (header, block.slice(body)))),
                    );
                    Ok(())
                }
                (Ok(Some((header, body))), _) => self.on_frame(&header, body),
                (Err(error), _) => self.on_bad_frame(error),
            };
            if let Err(error) = result {
                self.end_link(CloseCode::Protocol, DownReason::Protocol(error));
            }
        }
        self.arrange_acknowledgement();
    }

    /// Reads the next received item into `packet`, replacing its contents, if the item is a packet;
    /// see [`Output::Tlp`]. Items that do not come out here come out as outputs.
    #[inline]
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<Arrival> {
        if !self.tlp_waits || !self.items.is_empty() {
            return None;
        }
        let result = match self.reader.next(&mut self.pool) {
            Ok(Some((header, body))) => self.pass_on_tlp(&header, body, packet),
            Ok(None) => Ok(None),
            Err(error) => self.on_bad_frame(error).map(|()| None),
        };
        let arrival = result.unwrap_or_else(|error| {
            self.end_link(CloseCode::Protocol, DownReason::Protocol(error));
            None
        });
        self.read(false);
        arrival
    }

    /// Handles bytes that are no frame. If frames have digests, the bytes were a frame when they
    /// were sent, and are sent again over the next connection.
    fn on_bad_frame(&mut self, error: FrameError) -> Result<(), ProtocolError> {
        if !self.reader.is_checked() {
            return Err(ProtocolError::Frame(error));
        }
        self.lose_connection(LossReason::Damaged(error));
        Ok(())
    }

    /// Reads the TLP that waits into `packet`. It leaves the session's memory, so its credits
    /// become free.
    fn pass_on_tlp(
        &mut self,
        header: &FrameHeader,
        body: Range<usize>,
        packet: &mut Packet,
    ) -> Result<Option<Arrival>, ProtocolError> {
        let link = self.link.as_mut().expect("an open connection has a link");
        link.on_header(header)?;
        let Some((arrival, cost)) = self.on_tlp(header, body, packet)? else { return Ok(None) };
        if let Some(link) = &mut self.link {
            link.granting().pass_on(cost);
        }
        Ok(Some(arrival))
    }

    fn on_frame(&mut self, header: &FrameHeader, body: Range<usize>) -> Result<(), ProtocolError> {
        let link = self.link.as_mut().expect("an open connection has a link");
        if !matches!(header.kind, FrameKind::Close | FrameKind::Refuse) {
            // A peer that closes may have lost count, and a peer that refuses has not begun to
            // count.
            link.on_header(header)?;
        }
        if header.kind == FrameKind::Tlp {
            let mut packet = Packet::blank();
            if let Some((arrival, cost)) = self.on_tlp(header, body, &mut packet)? {
                self.items.push_back(Item::Tlp(packet, arrival, cost, self.link_number));
            }
            return Ok(());
        }
        let body = self.reader.block().slice(body);
        match Frame::parse(header, &body).map_err(ProtocolError::Frame)? {
            Frame::Credit(limits) => link.allow(limits),
            Frame::Reset(phase) => self.on_reset(phase),
            Frame::Ping(sent_at) => {
                let wants_tally = link.tallied;
                self.pong_due = Some((sent_at, self.now));
                if wants_tally {
                    self.emit(Output::WantsTally);
                }
                Ok(())
            }
            Frame::Pong(pong) => {
                self.on_pong(&pong);
                Ok(())
            }
            Frame::Close(code, text) => {
                self.on_closed_by_peer(code, text);
                Ok(())
            }
            Frame::Refuse(code, _)
                if self.role == Role::Downstream && (code == RefuseCode::Deadline || !link.heard) =>
            {
                // The Welcome reached the host too late or damaged. The host has left this
                // connection and makes another.
                self.lose_connection(LossReason::Disconnected);
                Ok(())
            }
            Frame::Ahead(ahead, _) if self.takes_ahead() => {
                let bytes = body.slice(AHEAD_HEAD..body.len());
                self.emit(Output::Ahead(ahead, bytes));
                Ok(())
            }
            Frame::Forget(_) if self.takes_ahead() => {
                self.emit(Output::Forget(body.clone()));
                Ok(())
            }
            Frame::Tally(tally) if self.role == Role::Upstream && self.config.tally => {
                self.on_tally(tally);
                Ok(())
            }
            Frame::Registers(registers) if self.role == Role::Upstream && self.config.config_cache => {
                self.on_registers(registers, body.len());
                Ok(())
            }
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refuse(..)
            | Frame::Tlp(..)
            | Frame::Ahead(..)
            | Frame::Forget(_)
            | Frame::Tally(_)
            | Frame::Registers(_) => Err(ProtocolError::Unexpected(header.kind)),
        }
    }

    fn on_registers(&mut self, registers: Registers, length: usize) {
        let Some(link) = &mut self.link else { return };
        link.on_numbered(self.last_heard, HEADER_LENGTH + length);
        // Registers from before a pending reset are of no use.
        if link.resets_pending == 0 {
            self.emit(Output::Registers(registers));
        }
    }

    /// Whether this end has announced to the peer that it keeps memory sent ahead.
    fn takes_ahead(&self) -> bool {
        self.role == Role::Downstream && self.config.ahead > 0
    }

    /// Reads a TLP that came in order into `packet`. Returns its arrival, and the credits that it
    /// takes until it is passed on; `None` if the TLP is to be dropped.
    #[inline]
    fn on_tlp(
        &mut self,
        header: &FrameHeader,
        body: Range<usize>,
        packet: &mut Packet,
    ) -> Result<Option<(Arrival, Cost)>, ProtocolError> {
        let link = self.link.as_mut().expect("an open connection has a link");
        let (length, end) = (HEADER_LENGTH + body.len(), body.end);
        let block = self.reader.block();
        let (stamps, tlp) = parse_tlp(header.stamped, &block[body]).map_err(ProtocolError::Frame)?;
        packet.read_within(block, end - tlp.len()..end).map_err(ProtocolError::Tlp)?;
        if packet.payload.len() > usize::from(self.config.max_payload) {
            let found = packet.payload.len();
            return Err(ProtocolError::Payload { most: self.config.max_payload, found });
        }
        let cost = cost(packet);
        if !link.granting().arrive(cost) {
            return Err(ProtocolError::Overdrawn(cost.0));
        }
        link.on_numbered(self.last_heard, length);
        self.statistics.tlps_received += 1;
        if self.role == Role::Upstream && link.resets_pending > 0 {
            // The TLP was sent before the pending reset.
            link.granting().pass_on(cost);
            return Ok(None);
        }
        Ok(Some((Arrival { at: self.last_heard, stamps }, cost)))
    }

    fn on_reset(&mut self, phase: ResetPhase) -> Result<(), ProtocolError> {
        let link = self.link.as_mut().expect("an open connection has a link");
        link.on_numbered(self.now, HEADER_LENGTH);
        match (self.role, phase) {
            (Role::Upstream, ResetPhase::Done) if link.resets_pending > 0 => link.resets_pending -= 1,
            (Role::Downstream, ResetPhase::Request) => {
                link.resets_pending += 1;
                if link.resets_pending > super::link::RESETS_MAX {
                    return Err(ProtocolError::Reset);
                }
                self.items.push_back(Item::Reset(self.link_number));
            }
            _ => return Err(ProtocolError::Reset),
        }
        Ok(())
    }

    /// Handles the delivery to the device of a reset that came over link `number`. Packets queued
    /// for the host are from before the reset.
    pub(super) fn on_reset_delivered(&mut self, number: u32) {
        if number == self.link_number
            && let Some(link) = &mut self.link
        {
            link.resets_pending -= 1;
            let dropped = link.push_reset(ResetPhase::Done);
            self.statistics.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
        }
    }

    fn on_tally(&mut self, tally: Tally) {
        if let Some(link) = &mut self.link {
            link.tally = Some((link.answered_ping, tally));
        }
    }

    fn on_pong(&mut self, pong: &Pong) {
        if let Some(link) = &mut self.link {
            link.answered_ping = pong.ping_sent_at;
        }
        if self.ping_sent_at == Some(pong.ping_sent_at) {
            self.ping_sent_at = None;
            self.clock.on_pong(self.now, pong);
        }
    }

    /// Lets an acknowledgement wait for company, unless much has arrived.
    fn arrange_acknowledgement(&mut self) {
        let (Connection::Open, Some(link)) = (self.connection, &self.link) else { return };
        let (frames, bytes) = link.unacknowledged();
        if frames >= ACKNOWLEDGE_FRAMES || bytes >= ACKNOWLEDGE_BYTES {
            self.acknowledge_due = true;
        } else if frames > 0 && !self.timers.is_armed(Timer::Acknowledge) {
            self.timers.arm(Timer::Acknowledge, self.now + self.config.acknowledge_delay);
        }
    }
}
