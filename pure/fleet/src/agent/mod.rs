//! The agent of a machine: makes durable what the controller demands, has the target enforce it,
//! and reports the outcome.

mod copies;
mod refusal;
mod state;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use engine::{Engine, Instant, Nanos};

use crate::object::{Admission, Data, Mode};
use crate::slice::{AttachmentReport, HostAttachment, OwnedVolume, Report, Slice, VolumeReport, Wish};
use crate::{Epoch, Name};
use copies::take_copy;
pub use copies::{Copies, ToCopy};
pub use refusal::Refusal;
pub use state::{SavedAttachment, SavedCopy, SavedVolume, State};

/// How often an agent reports although nothing has changed: a report may have been lost.
pub const REPORT_EVERY: Nanos = Nanos::from_secs(10);

/// The inputs of an agent.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A controller that leads in this term asks for reports. The slices of others are ignored from
    /// now on.
    Asked(u64),
    /// A controller demands this.
    Slice(&'a Slice),
    /// The state with this number is durable.
    Saved(u64),
    /// What the machine's target and its devices are doing.
    Observed(&'a Observation),
}

/// The outputs of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make the state durable, then answer with [`Input::Saved`].
    Save {
        /// The number of the state.
        number: u64,
        /// The state.
        state: State,
    },
    /// Have the target serve these volumes, and let in these hosts only. Ends the associations of
    /// others, and creates or extends the volumes' files first. The world tries until it succeeds,
    /// or until the next such output.
    Serve {
        /// The number that an [`Observation`] has once this was done.
        number: u64,
        /// The volumes.
        volumes: Vec<Served>,
    },
    /// Delete a volume's data. The target no longer serves it.
    Delete {
        /// The volume.
        volume: Name,
        /// The pool that holds it.
        pool: Name,
    },
    /// Make this data from other data, and nothing else: work on other copies ends.
    /// Each is durable as a whole, or is not there. The world tries until it succeeds, or until the
    /// next such output.
    Copy {
        /// The number that [`Copies`] have from then on.
        number: u64,
        /// What to make.
        copies: Vec<ToCopy>,
    },
    /// Delete a snapshot.
    DeleteSnapshot {
        /// The snapshot.
        snapshot: Name,
        /// The pool that holds it.
        pool: Name,
        /// What distinguishes it from others that had its name.
        epoch: Epoch,
    },
    /// Connect to a volume and stay connected; adopt a device that is there already.
    Connect {
        /// The attachment.
        name: Name,
        /// What to connect.
        attachment: SavedAttachment,
    },
    /// Disconnect a device.
    Disconnect(Name),
    /// Report this to the controller.
    Report(Report),
    /// The agent refuses what a controller demands: for the log.
    Refused(Refusal),
}

/// A volume that a target serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The volume.
    pub name: Name,
    /// The pool that holds it.
    pub pool: Name,
    /// Its size in bytes.
    pub bytes: u64,
    /// The hosts that are let in.
    pub admitted: Vec<Admission>,
}

/// What a machine's target and its devices are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The number of the latest [`Output::Serve`] that was done before anything here was observed.
    pub number: u64,
    /// The volumes that the target serves.
    pub served: Vec<Served>,
    /// The attachments whose hosts have associations or requests in progress, by volume.
    pub associations: Vec<(Name, Name)>,
    /// The volumes whose data is there.
    pub present: Vec<Name>,
    /// The attachments that have devices, and whether each reaches its volume.
    pub devices: Vec<(Name, bool)>,
    /// The snapshots, and the volumes that are made from other data.
    pub copies: Copies,
}

/// The agent of a machine.
#[derive(Debug)]
pub struct Agent {
    saved: State,
    /// The state that is being made durable, and its number.
    saving: Option<(u64, State)>,
    number: u64,
    /// The latest slice that came meanwhile.
    pending: Option<Slice>,
    /// The term of the controller that asked last.
    term: u64,
    /// `None` until the machine was first observed.
    observed: Option<Observation>,
    /// What the target was last asked to serve, and the number of times.
    served: Option<Vec<Served>>,
    serves: u64,
    /// The devices that were asked for, and the epochs in which their hosts were let in.
    asked: BTreeMap<Name, Epoch>,
    reported: Option<Report>,
    report_at: Instant,
    refused: Vec<Refusal>,
    /// The copies to make, and the number of times that they have changed.
    copying: Vec<ToCopy>,
    copy_number: u64,
    /// The latest slice, if something in it has to wait for something to go.
    again: Option<Slice>,
    outputs: VecDeque<Output>,
}

impl Engine for Agent {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Asked(term) => {
                self.term = term;
                (self.pending, self.again) = (None, None);
                self.reported = None;
            }
            Input::Slice(slice) if slice.seen.term != self.term => (),
            Input::Slice(slice) => self.on_slice(slice),
            Input::Saved(number) => {
                if let Some((_, state)) = self.saving.take_if(|(saving, _)| *saving == number) {
                    self.saved = state;
                    self.act();
                    if let Some(slice) = self.pending.take() {
                        self.on_slice(&slice);
                    }
                }
            }
            Input::Observed(observation) => {
                self.observed = Some(observation.clone());
                self.forget_ended();
                self.act();
                if self.saving.is_none()
                    && let Some(slice) = self.again.take()
                {
                    self.take(&slice);
                }
            }
        }
        self.report(now, false);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now >= self.report_at {
            self.report(now, true);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.report_at)
    }
}

impl Agent {
    /// An agent that goes on with the state that was durable. It has the target enforce that state
    /// once it has seen what the target does, without any controller.
    pub const fn new(now: Instant, saved: State) -> Self {
        Self {
            saved,
            saving: None,
            number: 0,
            pending: None,
            term: 0,
            observed: None,
            served: None,
            serves: 0,
            asked: BTreeMap::new(),
            reported: None,
            report_at: now,
            refused: Vec::new(),
            copying: Vec::new(),
            copy_number: 0,
            again: None,
            outputs: VecDeque::new(),
        }
    }

    /// The state that is durable.
    pub const fn saved(&self) -> &State {
        &self.saved
    }

    /// What the target is to serve now. A host is let in only after the hosts that are let in no
    /// longer have gone: two steps, even if the durable list has both changes.
    fn to_serve(&self, observed: &Observation) -> Vec<Served> {
        let volumes = self.saved.volumes.iter().filter(|(name, volume)| {
            // A controller of an earlier version knows of no data that is to be copied first.
            !volume.delete && !self.is_unmade_volume(name)
        });
        volumes
            .map(|(name, volume)| Served {
                name: name.clone(),
                pool: volume.pool.clone(),
                bytes: volume.bytes,
                admitted: self.to_let_in(observed, name, volume),
            })
            .collect()
    }

    /// The hosts of a volume that the target is to let in now.
    fn to_let_in(&self, observed: &Observation, name: &Name, volume: &SavedVolume) -> Vec<Admission> {
        if self.is_held(name) {
            return Vec::new();
        }
        let Some(served) = observed.served.iter().find(|served| served.name == *name) else {
            return volume.admitted.clone();
        };
        let is_admitted = |one: &Name| volume.admitted.iter().any(|admitted| admitted.attachment == *one);
        let mut associations = observed.associations.iter().filter(|(of, _)| of == name);
        let others_are_out = served.admitted.iter().all(|one| volume.admitted.contains(one))
            && associations.all(|(_, attachment)| is_admitted(attachment));
        let list = volume.admitted.iter().filter(|one| others_are_out || served.admitted.contains(one));
        list.cloned().collect()
    }

    fn on_slice(&mut self, slice: &Slice) {
        if self.saving.is_some() {
            self.pending = Some(slice.clone());
        } else {
            self.take(slice);
        }
    }

    /// Makes what a slice demands durable, as far as it is newer than what is.
    fn take(&mut self, slice: &Slice) {
        let seen = slice.seen;
        if seen.incarnation < self.saved.seen.incarnation {
            let (offered, saved) = (seen.incarnation, self.saved.seen.incarnation);
            return self.refuse(Refusal::Incarnation { offered, saved });
        }
        if seen < self.saved.seen {
            return; // A later slice has overtaken this one.
        }
        let mut state = self.saved.clone();
        let mut refusals = Vec::new();
        for volume in &slice.volumes {
            refusals.extend(take_volume(&mut state, volume));
        }
        for copy in &slice.copies {
            let is_gone = |saved| self.is_copy_gone(&copy.data, saved);
            let is_gone = self.saved.copies.get(&copy.data).is_none_or(is_gone);
            let refused = take_copy(&mut state, copy, is_gone);
            if refused.is_some() {
                self.again = Some(slice.clone());
            }
            refusals.extend(refused);
        }
        for attachment in &slice.attachments {
            refusals.extend(take_attachment(&mut state, attachment));
        }
        // What was deleted is forgotten when the store has forgotten it.
        let is_gone = |name: &Name, volume: &SavedVolume| {
            let demanded = slice.volumes.iter().any(|one| one.name == *name);
            volume.delete && !demanded && self.is_gone(name)
        };
        state.volumes.retain(|name, volume| !is_gone(name, volume));
        self.forget_copies(&mut state, slice);
        refusals.into_iter().for_each(|refusal| self.refuse(refusal));
        let changes = state.volumes != self.saved.volumes
            || state.attachments != self.saved.attachments
            || state.copies != self.saved.copies;
        if !changes && seen.incarnation == self.saved.seen.incarnation {
            self.saved.seen = seen; // Nothing depends on this: it need not be durable.
            return;
        }
        state.seen = seen;
        self.save(state);
    }

    /// Forgets snapshots that were deleted, and copies that are ordinary volumes by now.
    fn forget_copies(&self, state: &mut State, slice: &Slice) {
        let volumes = &state.volumes;
        state.copies.retain(|data, copy| match data {
            Data::Volume(name) => {
                !volumes.get(name).is_some_and(|volume| volume.delete || copy.made.is_some())
            }
            Data::Snapshot(_) => {
                let is_demanded = slice.copies.iter().any(|one| one.data == *data);
                !copy.delete || is_demanded || !self.is_copy_gone(data, copy)
            }
        });
    }

    fn save(&mut self, state: State) {
        self.number += 1;
        self.outputs.push_back(Output::Save { number: self.number, state: state.clone() });
        self.saving = Some((self.number, state));
    }

    /// Refuses a demand, and logs that once.
    fn refuse(&mut self, refusal: Refusal) {
        if !self.refused.contains(&refusal) {
            self.refused.push(refusal.clone());
            self.outputs.push_back(Output::Refused(refusal));
        }
    }

    /// Has the machine do what the durable state says.
    fn act(&mut self) {
        let Some(observed) = self.observed.take() else { return };
        self.note_made(&observed);
        self.copy(&observed);
        if observed.number == self.serves {
            let wanted = self.to_serve(&observed);
            if self.served.as_ref() != Some(&wanted) {
                self.serves += 1;
                self.outputs.push_back(Output::Serve { number: self.serves, volumes: wanted.clone() });
                self.served = Some(wanted);
            }
        }
        self.delete(&observed);
        self.connect(&observed);
        self.observed = Some(observed);
    }

    /// Has the data of deleted volumes deleted that the target serves no longer.
    fn delete(&mut self, observed: &Observation) {
        for (name, volume) in &self.saved.volumes {
            let is_served = observed.served.iter().any(|served| served.name == *name);
            let is_there = observed.number == self.serves && observed.present.contains(name);
            if volume.delete && is_there && !is_served && !self.is_needed(&Data::Volume(name.clone())) {
                let (volume, pool) = (name.clone(), volume.pool.clone());
                self.outputs.push_back(Output::Delete { volume, pool });
            }
        }
    }

    /// Has devices connected and disconnected.
    fn connect(&mut self, observed: &Observation) {
        let is_wanted = |name: &Name, epoch: &Epoch| {
            self.saved.attachments.get(name).is_some_and(|saved| saved.epoch == *epoch)
        };
        let asked = self.asked.extract_if(.., |name, epoch| !is_wanted(name, epoch));
        let ended: Vec<_> = asked.map(|(name, _)| name).collect();
        let is_superseded = |name: &Name| !self.saved.attachments.contains_key(name);
        // Devices of an earlier life of the agent, whose attachments have ended meanwhile.
        let left =
            observed.devices.iter().map(|(name, _)| name).filter(|name| {
                is_superseded(name) && self.saved.ended.contains(*name) && !ended.contains(name)
            });
        let left: Vec<_> = left.cloned().collect();
        self.outputs.extend(ended.into_iter().chain(left).map(Output::Disconnect));
        for (name, attachment) in &self.saved.attachments {
            if self.asked.insert(name.clone(), attachment.epoch).is_none() {
                let (name, attachment) = (name.clone(), attachment.clone());
                self.outputs.push_back(Output::Connect { name, attachment });
            }
        }
    }

    /// Forgets the attachments that have ended and that have no devices any more.
    fn forget_ended(&mut self) {
        let devices = self.observed.as_ref().map(|observed| &observed.devices[..]).unwrap_or_default();
        self.saved.ended.retain(|name| devices.iter().any(|(device, _)| device == name));
    }

    /// Sends a report, if it differs from the last one.
    fn report(&mut self, now: Instant, again: bool) {
        let report = self.describe();
        let is_same = |known: &Report| Report { seen: known.seen, ..report.clone() } == *known;
        if again || !self.reported.as_ref().is_some_and(is_same) {
            self.outputs.push_back(Output::Report(report.clone()));
            self.reported = Some(report);
            self.report_at = now + REPORT_EVERY;
        }
    }

    /// The report. A state that is being made durable counts already, as it cannot be undone.
    pub fn describe(&self) -> Report {
        let state = self.saving.as_ref().map_or(&self.saved, |(_, state)| state);
        let volumes = state.volumes.iter().map(|(name, volume)| VolumeReport {
            name: name.clone(),
            pool: volume.pool.clone(),
            bytes: volume.bytes,
            epoch: volume.epoch,
            admitted: volume.admitted.clone(),
            enforced: self.is_enforced(name, volume),
            deleted: volume.delete && self.is_gone(name),
        });
        let is_connected = |name: &Name| {
            let devices = self.observed.iter().flat_map(|observed| &observed.devices);
            devices.filter(|(device, _)| device == name).any(|(_, connected)| *connected)
        };
        let attachments = state.attachments.iter().map(|(name, attachment)| AttachmentReport {
            name: name.clone(),
            volume: attachment.volume.clone(),
            owner: attachment.owner.clone(),
            epoch: attachment.epoch,
            connected: is_connected(name),
        });
        let (copies, pools) = self.describe_copies(state);
        Report {
            term: self.term,
            seen: state.seen,
            volumes: volumes.collect(),
            attachments: attachments.collect(),
            copies,
            pools,
        }
    }

    /// What was observed after the target was last asked for something.
    fn current(&self) -> Option<&Observation> {
        self.observed.as_ref().filter(|observed| observed.number == self.serves)
    }

    /// Whether a volume's data is certainly not there, and will not be.
    fn is_gone(&self, name: &Name) -> bool {
        let data = Data::Volume(name.clone());
        let is_durable = self.saved.volumes.get(name).is_none_or(|volume| volume.delete)
            && !self.saved.copies.contains_key(&data);
        let is_gone = |observed: &Observation| {
            let copies = &observed.copies;
            let is_still = copies.number == self.copy_number && !copies.is_making(&data);
            is_still && !observed.present.contains(name)
        };
        is_durable && self.current().is_some_and(is_gone)
    }

    /// Whether the target has a volume's durable list of hosts, and serves no others.
    fn is_enforced(&self, name: &Name, volume: &SavedVolume) -> bool {
        let Some(observed) = self.current().filter(|_| self.saved.volumes.get(name) == Some(volume)) else {
            return false;
        };
        let served = observed.served.iter().find(|served| served.name == *name);
        let is_admitted = |one: &Name| volume.admitted.iter().any(|admitted| admitted.attachment == *one);
        let mut associations = observed.associations.iter().filter(|(of, _)| of == name);
        let lists_agree = match served {
            Some(served) => served.admitted == volume.admitted && served.bytes >= volume.bytes,
            None => volume.delete && volume.admitted.is_empty(),
        };
        lists_agree && associations.all(|(_, attachment)| is_admitted(attachment))
    }
}

/// Takes what a slice demands of a volume into the state, or refuses it.
fn take_volume(state: &mut State, demanded: &OwnedVolume) -> Option<Refusal> {
    let OwnedVolume { name, pool, bytes, epoch, admitted, delete } = demanded;
    let saved = state.volumes.get(name).filter(|saved| saved.epoch == *epoch);
    let admitted =
        &saved.map_or_else(|| admitted.clone(), |saved| with_transports(admitted, &saved.admitted));
    let new = SavedVolume {
        pool: pool.clone(),
        bytes: *bytes,
        epoch: *epoch,
        admitted: admitted.clone(),
        delete: *delete,
    };
    let Some(saved) = state.volumes.get_mut(name) else {
        state.volumes.insert(name.clone(), new);
        return None;
    };
    let is_other = || admitted.iter().map(host_of).ne(saved.admitted.iter().map(host_of));
    if *epoch < saved.epoch || *epoch == saved.epoch && is_other() {
        return Some(Refusal::Volume { volume: name.clone(), offered: *epoch, saved: saved.epoch });
    }
    // A volume grows only, and a deletion is for good until another volume has the name.
    let is_same = saved.pool == *pool && !(saved.delete && *epoch > saved.epoch);
    if is_same {
        saved.bytes = saved.bytes.max(*bytes);
        (saved.epoch, saved.admitted, saved.delete) = (*epoch, admitted.clone(), saved.delete || *delete);
    } else if saved.delete {
        *saved = new;
    }
    None
}

/// What never changes of an admission within an epoch.
const fn host_of(one: &Admission) -> (&Name, &Name, Mode, Epoch) {
    (&one.attachment, &one.node, one.mode, one.epoch)
}

/// A list of hosts in the epoch of the saved one. A controller of an earlier version knows no
/// transports and sends the default, which must not cut a host's path; an agent of an earlier
/// version has saved the default, which must not stay.
fn with_transports(list: &[Admission], saved: &[Admission]) -> Vec<Admission> {
    let known = |one: &Admission| {
        let known = saved.iter().find(|known| host_of(known) == host_of(one));
        known.map_or(one.transport, |known| one.transport.max(known.transport))
    };
    list.iter().map(|one| Admission { transport: known(one), ..one.clone() }).collect()
}

/// Takes what a slice demands of an attachment into the state, or refuses it: a host keeps its
/// device until that has ended, even if a store that was restored has another disk of the name.
fn take_attachment(state: &mut State, demanded: &HostAttachment) -> Option<Refusal> {
    let HostAttachment { name, volume, epoch, mode, transport, owner, addresses, wish } = demanded;
    let saved = state.attachments.get(name);
    let is_newer = saved.is_none_or(|saved| saved.epoch <= *epoch);
    let other = saved.filter(|saved| (&saved.volume, &saved.owner) != (volume, owner));
    match (wish, other) {
        (Wish::Connect, Some(other)) => {
            let (attachment, saved) = (name.clone(), (other.volume.clone(), other.owner.clone()));
            return Some(Refusal::Attachment { attachment, offered: (volume.clone(), owner.clone()), saved });
        }
        (Wish::Connect, None) if is_newer => {
            let (volume, owner, addresses) = (volume.clone(), owner.clone(), addresses.clone());
            let same = saved.filter(|saved| saved.epoch == *epoch);
            let transport = same.map_or(*transport, |saved| saved.transport.max(*transport));
            let (epoch, mode) = (*epoch, *mode);
            let attachment = SavedAttachment { volume, epoch, mode, transport, owner, addresses };
            state.attachments.insert(name.clone(), attachment);
        }
        (Wish::Disconnect, None) if saved.is_some() && is_newer => {
            state.attachments.remove(name);
            state.ended.insert(name.clone());
        }
        _ => (),
    }
    None
}

#[cfg(test)]
mod tests;
