//! Connections that arrive, and the descriptors that end a sleep. A refusal of the system for one
//! of them must not harm the others.

use std::io;
use std::os::fd::AsRawFd;

use assemblies::fabric::Fabric;
use assemblies::target::{Accepted, CONNECTIONS_MAX, ConnectionId, Handover, Input};
use engine::{Engine, Instant};

use super::link::Link;
use super::lively::name_of;
use super::{Event, Moved, TargetDriver};
use crate::drivers::fabrics::Socket;
use crate::reactor::{Attention, Sources};

/// The most connections that a port accepts in one go: others have work meanwhile.
const ACCEPTS_AT_ONCE: usize = 8;

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Makes ports and media end a sleep. A refused registration is tried again.
    pub(super) fn register(&mut self, sources: &Sources) {
        let mut refused = None;
        for port in self.ports.iter_mut().filter(|port| !port.is_registered) {
            match sources.add(port.listener.as_raw_fd(), Attention::OnNews) {
                Ok(()) => port.is_registered = true,
                Err(error) => refused = Some(error),
            }
        }
        for key in core::mem::take(&mut self.unregistered) {
            let Some(media) = &self.shell.media[key.0 as usize] else { continue };
            for descriptor in media.poll_fds() {
                if self.registered.contains(&(key, descriptor)) {
                    continue;
                }
                // Media at rest are looked at when other threads have messages for them.
                let attention = match media.mail_fd() == Some(descriptor) {
                    true => Attention::Named(name_of(key)),
                    false => Attention::EachTurn,
                };
                match sources.add(descriptor, attention) {
                    Ok(()) => self.registered.push((key, descriptor)),
                    Err(error) => {
                        self.unregistered.push(key);
                        refused = Some(error);
                        break;
                    }
                }
            }
        }
        if let Err(error) = self.pairs.register(sources) {
            refused = Some(error);
        }
        if let Some(error) = refused {
            self.refuse(error);
        }
    }

    pub(super) fn is_registered(&self) -> bool {
        self.unregistered.is_empty()
            && self.pairs.is_registered()
            && self.ports.iter().all(|port| port.is_registered)
    }

    pub(super) fn accept(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut accepted = false;
        for index in 0..self.ports.len() {
            for _ in 0..ACCEPTS_AT_ONCE {
                let port = &self.ports[index];
                let (id, fabric) = (port.id, port.fabric);
                match port.listener.accept() {
                    Ok(Some(connection)) => {
                        accepted = true;
                        self.is_refusing = false;
                        let mut socket = Socket::from(connection);
                        if fabric == Fabric::Tcp {
                            socket.accept_tls(&self.acceptor);
                        }
                        self.begin(now, sources, Link::new(Some(socket), id, fabric, now), None);
                    }
                    Ok(None) => break,
                    // No descriptor is left: existing connections go on.
                    Err(error) => {
                        self.refuse(error);
                        break;
                    }
                }
            }
        }
        accepted
    }

    /// Goes on with a connection that another reactor has accepted.
    pub(super) fn receive_moved(&mut self, now: Instant, sources: &Sources, moved: Moved) {
        let is_guest = moved.handover.ticket.is_some();
        let ticket = moved.handover.ticket.clone();
        let begun = Socket::from_moving(moved.socket).is_ok_and(|socket| {
            let link = Link::new(Some(socket), moved.port, moved.fabric, now);
            let link = Link { proved: moved.proved, is_guest, ..link };
            self.begin(now, sources, link, Some(moved.handover))
        });
        if let Some(ticket) = ticket.filter(|_| !begun) {
            // The connection has failed, or there is no room for it.
            self.target.engine_mut().return_ticket(now, ticket);
            self.target.exchange(now, &mut self.shell);
            if let Some(mailbox) = &self.mailbox {
                mailbox.guest_is_gone();
            }
        }
    }

    /// Reports that connections are turned away, once until a connection is let in again.
    fn refuse(&mut self, error: io::Error) {
        if !core::mem::replace(&mut self.is_refusing, true) {
            (self.shell.report)(Event::AcceptFailed(error));
        }
    }

    /// The name of the next connection; `None` when there are too many.
    pub(super) fn free_name(&mut self) -> Option<ConnectionId> {
        let links = &mut self.shell.links;
        let free = links.iter().position(Option::is_none).unwrap_or(links.len());
        let name = u32::try_from(free).ok().filter(|index| *index < CONNECTIONS_MAX);
        if name.is_none() {
            self.refuse(io::ErrorKind::QuotaExceeded.into());
        } else if free == self.shell.links.len() {
            self.shell.links.push(None);
        }
        name.map(ConnectionId)
    }

    /// Begins with a connection. Returns whether it has a name now.
    fn begin(&mut self, now: Instant, sources: &Sources, link: Link, resume: Option<Handover>) -> bool {
        let Some(socket) = &link.socket else { return false };
        let (Some(connection), Ok(local)) = (self.free_name(), socket.local()) else { return false };
        let (port, fabric) = (link.port, link.fabric);
        let (peer, proved) = (socket.peer(), link.proved.clone());
        if let Err(error) = self.strangers.add(sources, socket.as_raw_fd(), connection) {
            self.refuse(error);
            return false;
        }
        self.shell.links[connection.0 as usize] = Some(link);
        let accepted = Accepted { connection, port, fabric, peer, local, proved, resume, pair: None };
        self.target.engine_mut().handle_input(now, Input::Accepted(accepted));
        self.target.exchange(now, &mut self.shell);
        self.settle_strangers(sources);
        true
    }
}
