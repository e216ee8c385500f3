//! The surroundings of the engines of a target: connections, media, and the receiver of events.

use std::collections::VecDeque;

use assemblies::target::{ConnectionId, Input, Output, Target};
use engine::{Engine, Instant, Nanos};
use nvme::media::Completion;
use nvme_fabrics::authentication::Work;
use nvme_fabrics::target::{SubsystemKey, WorkId};

use super::Event;
use super::letters::Leaving;
use super::link::Link;
use super::lively::LivelyMedia;
use super::mailbox::Moved;
use crate::drivers::fabrics::Socket;
use crate::media::Media;
use crate::reactor::Shell;

/// How long a host may take to close a connection that we have ended before it is dropped.
const LINGER: Nanos = Nanos::from_secs(1);

/// The connections and media of a target.
pub(super) struct TargetShell<F> {
    /// The links, by connection.
    pub(super) links: Vec<Option<Link>>,
    /// Connections with something to send.
    pub(super) sending: Vec<ConnectionId>,
    /// Connections whose input was not wanted for some time and is wanted again.
    pub(super) wanted: Vec<ConnectionId>,
    /// Connections that we have ended and that the host has not closed, with when each is dropped.
    pub(super) lingering: Vec<(Instant, ConnectionId)>,
    /// Those of them that have something to send.
    pub(super) closing: Vec<ConnectionId>,
    /// Strangers to be dropped at once.
    pub(super) dropped: Vec<ConnectionId>,
    /// Connections that have left for other reactors.
    pub(super) left: Vec<ConnectionId>,
    /// Connections that are strangers' no more.
    pub(super) admitted: Vec<ConnectionId>,
    /// Work for the thread beside the loop.
    pub(super) work: Option<(WorkId, Work)>,
    /// The media, by subsystem.
    pub(super) media: Vec<Option<Media>>,
    /// The media that are looked at in each turn.
    pub(super) lively: LivelyMedia,
    /// Completions that media have given at once.
    pub(super) inputs: VecDeque<(SubsystemKey, Completion)>,
    /// What will go to the mailboxes of other reactors.
    pub(super) leaving: Vec<Leaving>,
    pub(super) report: F,
}

impl<F: FnMut(Event)> TargetShell<F> {
    pub(super) const fn new(report: F) -> Self {
        Self {
            links: Vec::new(),
            sending: Vec::new(),
            wanted: Vec::new(),
            lingering: Vec::new(),
            closing: Vec::new(),
            dropped: Vec::new(),
            left: Vec::new(),
            admitted: Vec::new(),
            work: None,
            media: Vec::new(),
            lively: LivelyMedia::new(),
            inputs: VecDeque::new(),
            leaving: Vec::new(),
            report,
        }
    }

    /// The media of a subsystem that is here, which are looked at in each turn from now on.
    pub(super) fn media_of(&mut self, key: SubsystemKey) -> Option<&mut Media> {
        let media = self.media.get_mut(key.0 as usize)?.as_mut()?;
        self.lively.wake(key);
        Some(media)
    }
}

impl<F: FnMut(Event)> Shell<Target> for TargetShell<F> {
    fn pass(&mut self, now: Instant, output: Output, _: &mut Target) {
        match output {
            Output::Media { subsystem, owner, request } => {
                let Self { media, inputs, lively, .. } = self;
                if let Some(media) = media.get_mut(subsystem.0 as usize).and_then(Option::as_mut) {
                    lively.wake(subsystem);
                    media.submit_for(owner, request, &mut |completion| {
                        inputs.push_back((subsystem, completion));
                    });
                }
            }
            Output::Disowned { subsystem, request } => {
                let Self { media, inputs, lively, .. } = self;
                if let Some(media) = media.get_mut(subsystem.0 as usize).and_then(Option::as_mut) {
                    lively.wake(subsystem);
                    media.disown(request, &mut |completion| inputs.push_back((subsystem, completion)));
                }
            }
            Output::ToLane { subsystem, reactor, message } => {
                self.leaving.push(Leaving::ToLane(subsystem, reactor, message));
            }
            Output::ToHome { subsystem, message } => self.leaving.push(Leaving::ToHome(subsystem, message)),
            Output::Send(id) => self.sending.push(id),
            Output::Listen(id) => self.wanted.push(id),
            Output::Close(id) => {
                if let Some(link) = self.links[id.0 as usize].as_mut() {
                    link.is_ended = true;
                    self.lingering.push((now + LINGER, id));
                    self.closing.push(id);
                }
            }
            Output::Drop(id) => {
                if let Some(link) = self.links[id.0 as usize].as_mut() {
                    link.is_ended = true;
                    self.dropped.push(id);
                }
            }
            Output::Admitted(id) => self.admitted.push(id),
            Output::Work { id, work } => self.work = Some((id, work)),
            Output::HandOver { connection, subsystem, lane, handover } => {
                if let Some(link) = self.links[connection.0 as usize].take() {
                    self.left.push(connection);
                    let Link { port, fabric, proved, socket, .. } = link;
                    // A queue pair is never handed over.
                    if let Some(socket) = socket.map(Socket::into_moving) {
                        let moved = Moved { socket, port, fabric, proved, handover };
                        self.leaving.push(Leaving::Connection(subsystem, lane, moved));
                    }
                }
            }
            Output::Notify { subsystem, notification } => {
                if let Some(media) = self.media_of(subsystem) {
                    media.note(&notification);
                }
                (self.report)(Event::Notify(subsystem, notification));
            }
            Output::Event(event) => (self.report)(Event::Target(event)),
        }
    }

    fn answer(&mut self, now: Instant, target: &mut Target) -> bool {
        let has_answers = !self.inputs.is_empty();
        while let Some((subsystem, completion)) = self.inputs.pop_front() {
            target.handle_input(now, Input::Media { subsystem, completion });
        }
        has_answers
    }
}
