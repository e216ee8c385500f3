use alloc::vec;
use alloc::vec::Vec;

use engine::{Engine, Instant, drain};

use super::*;
use crate::object::{Mode, Transport};
use crate::slice::{CopyReport, OwnedCopy, Seen};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn admission(attachment: &str, number: u64) -> Admission {
    let epoch = Epoch { incarnation: 0, number };
    let (mode, transport) = (Mode::Exclusive, Transport::default());
    Admission { attachment: name(attachment), node: name("host"), mode, epoch, transport }
}

/// A slice of the first term with one volume, whose list of hosts has this epoch.
fn slice(revision: u64, number: u64, admitted: &[Admission]) -> Slice {
    let volume = OwnedVolume {
        name: name("v"),
        pool: name("p"),
        bytes: 1,
        epoch: Epoch { incarnation: 0, number },
        admitted: admitted.to_vec(),
        delete: false,
    };
    let seen = Seen { incarnation: 0, term: 1, revision };
    Slice { seen, volumes: vec![volume], ..Slice::default() }
}

/// An agent whose machine does at once what the agent asks for.
struct Bench {
    agent: Agent,
    observation: Observation,
    refusals: Vec<Refusal>,
    /// The lists that the target was asked for.
    lists: Vec<Vec<Admission>>,
    connected: Vec<(Name, Epoch)>,
    disconnected: Vec<Name>,
    /// The copies to make.
    copying: Vec<ToCopy>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::with(State::default(), Observation::default());
        bench.input(Input::Asked(1));
        bench
    }

    /// An agent that starts with a durable state, on a machine that is as observed.
    fn with(state: State, observation: Observation) -> Self {
        let mut bench = Self {
            agent: Agent::new(Instant::ZERO, state),
            observation,
            refusals: Vec::new(),
            lists: Vec::new(),
            connected: Vec::new(),
            disconnected: Vec::new(),
            copying: Vec::new(),
        };
        bench.observe();
        bench
    }

    /// Kills the agent and starts another. The target and the devices go on.
    fn restart(&mut self) {
        let state = self.agent.saved().clone();
        let copies = Copies { number: 0, making: Vec::new(), ..self.observation.copies.clone() };
        *self = Self::with(state, Observation { number: 0, copies, ..self.observation.clone() });
        self.input(Input::Asked(1));
    }

    fn input(&mut self, input: Input<'_>) {
        self.agent.handle_input(Instant::ZERO, input);
        let mut outputs = Vec::new();
        drain(&mut self.agent, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Save { number, .. } => self.input(Input::Saved(number)),
                Output::Serve { number, volumes } => {
                    self.lists.extend(volumes.iter().map(|volume| volume.admitted.clone()));
                    (self.observation.number, self.observation.served) = (number, volumes);
                    self.observe();
                }
                Output::Refused(refusal) => self.refusals.push(refusal),
                Output::Connect { name, attachment } => {
                    self.connected.push((name.clone(), attachment.epoch));
                    if self.observation.devices.iter().all(|(device, _)| *device != name) {
                        self.observation.devices.push((name, true));
                    }
                }
                Output::Disconnect(name) => {
                    self.observation.devices.retain(|(device, _)| *device != name);
                    self.disconnected.push(name);
                }
                Output::Copy { number, copies } => {
                    self.observation.copies.number = number;
                    self.copying = copies;
                    self.observe();
                }
                Output::DeleteSnapshot { snapshot, epoch, .. } => {
                    let data = Data::Snapshot(snapshot);
                    let present = &mut self.observation.copies.present;
                    present.retain(|(one, of, _)| (one, of) != (&data, &epoch));
                    self.observe();
                }
                Output::Delete { .. } | Output::Report(_) => (),
            }
        }
    }

    fn observe(&mut self) {
        let observation = self.observation.clone();
        self.input(Input::Observed(&observation));
    }

    fn is_enforced(&self) -> bool {
        self.agent.describe().volumes[0].enforced
    }
}

#[test]
fn an_older_list_is_refused_and_so_is_another_of_the_same_age() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    assert!(bench.is_enforced() && bench.refusals.is_empty());
    bench.input(Input::Slice(&slice(2, 4, &[])));
    bench.input(Input::Slice(&slice(3, 5, &[])));
    assert_eq!(bench.refusals.len(), 2);
    assert_eq!(bench.agent.saved().volumes[&name("v")].admitted, [admission("a", 5)]);
}

#[test]
fn a_host_is_let_in_only_when_the_one_before_has_gone() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    bench.observation.associations = vec![(name("v"), name("a"))];
    bench.observe();
    bench.input(Input::Slice(&slice(2, 6, &[admission("b", 6)])));
    assert_eq!(bench.lists.last(), Some(&Vec::new()), "nothing but the fence: requests of a are in progress");
    assert!(!bench.is_enforced());
    bench.observation.associations.clear();
    bench.observe();
    assert_eq!(bench.lists.last(), Some(&vec![admission("b", 6)]));
    assert!(bench.is_enforced());
}

#[test]
fn slices_of_a_term_that_has_not_asked_and_overtaken_ones_are_ignored() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(7, 5, &[])));
    bench.input(Input::Slice(&slice(6, 9, &[admission("a", 9)])));
    let mut other = slice(8, 9, &[admission("a", 9)]);
    other.seen.term = 2;
    bench.input(Input::Slice(&other));
    assert_eq!(bench.agent.saved().volumes[&name("v")].epoch.number, 5);
    assert!(bench.refusals.is_empty());
}

#[test]
fn nothing_goes_because_a_slice_lacks_it() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    let seen = Seen { incarnation: 0, term: 1, revision: 9 };
    bench.input(Input::Slice(&Slice { seen, ..Slice::default() }));
    assert_eq!(bench.observation.served[0].admitted, [admission("a", 5)]);
}

#[test]
fn a_store_of_an_earlier_incarnation_is_refused_with_the_remedy() {
    let saved = State { seen: Seen { incarnation: 2, term: 1, revision: 1 }, ..State::default() };
    let mut agent = Agent::new(Instant::ZERO, saved);
    agent.handle_input(Instant::ZERO, Input::Asked(1));
    agent.handle_input(Instant::ZERO, Input::Slice(&slice(5, 5, &[])));
    let mut refusals = Vec::new();
    drain(&mut agent, |output| {
        if let Output::Refused(refusal) = output {
            refusals.push(alloc::string::ToString::to_string(&refusal));
        }
    });
    assert_eq!(refusals.len(), 1);
    assert!(
        refusals[0].contains("has incarnation 0, but 2 is durable here") && refusals[0].contains("recover")
    );
}

/// A slice that has the machine connect to a volume, or disconnect from it.
fn host_slice(revision: u64, attachments: &[(&str, &str, u64, Wish)]) -> Slice {
    let attachments = attachments.iter().map(|(attachment, owner, number, wish)| HostAttachment {
        name: name(attachment),
        volume: name("v"),
        epoch: Epoch { incarnation: 0, number: *number },
        mode: Mode::Exclusive,
        transport: Transport::default(),
        owner: name(owner),
        addresses: Vec::new(),
        wish: *wish,
    });
    let seen = Seen { incarnation: 0, term: 1, revision };
    Slice { seen, attachments: attachments.collect(), ..Slice::default() }
}

#[test]
fn a_stale_path_never_writes_again() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    bench.input(Input::Slice(&slice(2, 6, &[])));
    // The host is let in once more, under the same name. Its keys have the new epoch.
    bench.input(Input::Slice(&slice(3, 7, &[admission("a", 7)])));
    let fence = bench.lists.iter().position(Vec::is_empty).unwrap();
    assert_eq!(bench.lists[fence + 1..], [[admission("a", 7)]]);
    // No late list lets the old path in, nor does another life of the agent.
    bench.restart();
    bench.input(Input::Slice(&slice(9, 5, &[admission("a", 5)])));
    let lists = &bench.observation.served[0].admitted;
    assert_eq!((lists.as_slice(), bench.refusals.len()), ([admission("a", 7)].as_slice(), 1));
}

#[test]
fn an_owner_acknowledges_only_what_is_durable_and_enforced() {
    let mut agent = Agent::new(Instant::ZERO, State::default());
    let outputs = |agent: &mut Agent, input: Input<'_>| {
        agent.handle_input(Instant::ZERO, input);
        let mut outputs = Vec::new();
        drain(agent, |output| outputs.push(output));
        outputs
    };
    outputs(&mut agent, Input::Asked(1));
    outputs(&mut agent, Input::Observed(&Observation::default()));
    // The target has been asked to serve nothing, and does so.
    let mut observation = Observation { number: 1, ..Observation::default() };
    outputs(&mut agent, Input::Observed(&observation));
    let demanded = slice(1, 5, &[admission("a", 5)]);
    let saves = outputs(&mut agent, Input::Slice(&demanded));
    assert!(matches!(saves[0], Output::Save { number: 1, .. }), "{saves:?}");
    assert!(!saves.iter().any(|output| matches!(output, Output::Serve { .. })), "not before it is durable");
    assert!(!agent.describe().volumes[0].enforced);
    let served = outputs(&mut agent, Input::Saved(1));
    let Some(Output::Serve { number, volumes }) = served.into_iter().next() else { panic!() };
    assert!(!agent.describe().volumes[0].enforced, "the target has not answered");
    (observation.number, observation.served) = (number, volumes);
    observation.associations = vec![(name("v"), name("z"))];
    outputs(&mut agent, Input::Observed(&observation));
    assert!(!agent.describe().volumes[0].enforced, "another host has requests in progress");
    observation.associations.clear();
    outputs(&mut agent, Input::Observed(&observation));
    assert!(agent.describe().volumes[0].enforced);
}

#[test]
fn a_machine_serves_and_connects_what_is_durable_without_any_controller() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    bench.input(Input::Slice(&host_slice(2, &[("b", "far", 3, Wish::Connect)])));
    // The machine loses its power, and no controller ever asks.
    let state = bench.agent.saved().clone();
    let bench = Bench::with(state, Observation::default());
    assert_eq!(bench.observation.served[0].admitted, [admission("a", 5)]);
    assert_eq!(bench.connected, [(name("b"), Epoch { incarnation: 0, number: 3 })]);
    assert!(bench.disconnected.is_empty());
}

#[test]
fn an_agent_that_starts_again_adopts_what_the_machine_has() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    bench.input(Input::Slice(&host_slice(2, &[("b", "far", 3, Wish::Connect)])));
    bench.observation.associations = vec![(name("v"), name("a"))];
    bench.restart();
    assert!(bench.disconnected.is_empty());
    assert_eq!(bench.lists, [[admission("a", 5)]], "the list stays, and the host with it");
    bench.observe();
    let report = bench.agent.describe();
    assert!(report.volumes[0].enforced && report.attachments[0].connected);
}

#[test]
fn an_agent_without_its_state_disconnects_nothing_and_deletes_nothing() {
    let devices = vec![(name("b"), true)];
    let observation = Observation { present: vec![name("v")], devices, ..Observation::default() };
    let mut bench = Bench::with(State::default(), observation);
    bench.input(Input::Asked(1));
    let seen = Seen { incarnation: 0, term: 1, revision: 9 };
    bench.input(Input::Slice(&Slice { seen, ..Slice::default() }));
    bench.observe();
    assert!(bench.disconnected.is_empty());
    assert_eq!((bench.observation.devices.len(), bench.observation.present.len()), (1, 1));
}

#[test]
fn detaching_one_disk_leaves_the_devices_of_its_neighbours_alone() {
    let mut bench = Bench::new();
    let both = [("a", "far", 3, Wish::Connect), ("b", "far", 4, Wish::Connect)];
    bench.input(Input::Slice(&host_slice(1, &both)));
    bench.observe();
    bench.input(Input::Slice(&host_slice(2, &[("a", "far", 3, Wish::Disconnect), both[1]])));
    bench.observe();
    assert_eq!(bench.disconnected, [name("a")]);
    assert_eq!(bench.connected.len(), 2, "b is not connected anew");
}

#[test]
fn a_host_keeps_its_device_when_a_slice_has_another_disk_of_the_name() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&host_slice(1, &[("a", "far", 3, Wish::Connect)])));
    bench.observe();
    // A store that was restored has the volume on another machine.
    bench.input(Input::Slice(&host_slice(2, &[("a", "other", 9, Wish::Connect)])));
    bench.observe();
    assert!(bench.disconnected.is_empty());
    let refusal = alloc::string::ToString::to_string(&bench.refusals[0]);
    assert!(refusal.contains("has a device of v of far here: detach it"), "{refusal}");
    // Once the device has ended, the other disk is connected.
    bench.input(Input::Slice(&host_slice(3, &[("a", "far", 3, Wish::Disconnect)])));
    bench.observe();
    bench.input(Input::Slice(&host_slice(4, &[("a", "other", 9, Wish::Connect)])));
    assert_eq!(bench.disconnected, [name("a")]);
    assert_eq!(bench.connected.last(), Some(&(name("a"), Epoch { incarnation: 0, number: 9 })));
}

/// A demand for a copy, with this epoch.
fn copy(data: &Data, of: &Data, number: u64) -> OwnedCopy {
    OwnedCopy {
        data: data.clone(),
        of: of.clone(),
        pool: name("p"),
        bytes: 1,
        epoch: Epoch { incarnation: 0, number },
        made: None,
        delete: false,
    }
}

/// The slice of a volume with these hosts, and of copies.
fn slice_with(revision: u64, number: u64, admitted: &[Admission], copies: &[OwnedCopy]) -> Slice {
    Slice { copies: copies.to_vec(), ..slice(revision, number, admitted) }
}

impl Bench {
    /// An agent with the volume `v`, in a pool whose files share blocks, or do not.
    fn with_volume(clones: bool, admitted: &[Admission]) -> Self {
        let mut bench = Self::new();
        bench.observation.present = vec![name("v")];
        bench.observation.copies.pools = vec![(name("p"), clones)];
        bench.input(Input::Slice(&slice(1, 5, admitted)));
        bench
    }

    /// The copies under way become durable.
    fn make(&mut self) {
        for one in core::mem::take(&mut self.copying) {
            match &one.data {
                Data::Volume(volume) => self.observation.present.push(volume.clone()),
                Data::Snapshot(_) => (),
            }
            self.observation.copies.present.push((one.data, one.epoch, 7));
        }
        self.observe();
    }

    fn copy_report(&self, data: &Data) -> Option<CopyReport> {
        self.agent.describe().copies.into_iter().find(|one| one.data == *data)
    }

    fn problem(&self, data: &Data) -> alloc::string::String {
        self.copy_report(data).unwrap().problem
    }
}

fn data() -> (Data, Data) {
    (Data::Snapshot(name("s")), Data::Volume(name("v")))
}

#[test]
fn a_snapshot_is_taken_once_while_hosts_write() {
    let (s, v) = data();
    let list = [admission("a", 5)];
    let mut bench = Bench::with_volume(true, &list);
    bench.input(Input::Slice(&slice_with(2, 5, &list, &[copy(&s, &v, 6)])));
    assert!(bench.copying[0].shares && bench.is_enforced());
    assert_eq!(bench.copy_report(&s).unwrap().made, None);
    bench.make();
    assert_eq!(bench.copy_report(&s).unwrap().made, Some(7));
    assert_eq!(bench.agent.saved().copies[&s].made, Some(7));
    // Its data is lost: another would have other data.
    bench.observation.copies.present.clear();
    bench.restart();
    assert!(bench.copying.is_empty());
    assert!(bench.problem(&s).contains("the file of snapshot/s is gone"), "{}", bench.problem(&s));
}

#[test]
fn where_files_share_no_blocks_a_copy_waits_for_the_hosts_and_hosts_wait_for_it() {
    let (s, v) = data();
    let list = [admission("a", 5)];
    let mut bench = Bench::with_volume(false, &list);
    let copies = [copy(&s, &v, 6)];
    bench.input(Input::Slice(&slice_with(2, 5, &list, &copies)));
    assert!(bench.copying.is_empty() && bench.problem(&s).contains("detach v"), "{}", bench.problem(&s));
    bench.observation.associations = vec![(name("v"), name("a"))];
    bench.input(Input::Slice(&slice_with(3, 6, &[], &copies)));
    assert!(bench.copying.is_empty(), "requests of a are in progress");
    bench.observation.associations.clear();
    bench.observe();
    assert!(!bench.copying[0].shares);
    bench.input(Input::Slice(&slice_with(4, 7, &[admission("b", 7)], &copies)));
    assert_eq!(bench.lists.last(), Some(&Vec::new()));
    assert!(!bench.is_enforced());
    bench.make();
    assert!(bench.is_enforced());
    assert_eq!(bench.lists.last(), Some(&vec![admission("b", 7)]));
}

#[test]
fn a_source_is_deleted_when_all_is_made_from_it() {
    let (s, v) = data();
    let c = Data::Volume(name("c"));
    let mut bench = Bench::with_volume(true, &[]);
    bench.input(Input::Slice(&slice_with(2, 5, &[], &[copy(&s, &v, 6)])));
    bench.make();
    let deleted = OwnedCopy { delete: true, ..copy(&s, &v, 6) };
    bench.input(Input::Slice(&slice_with(3, 5, &[], &[deleted, copy(&c, &s, 7)])));
    let report = bench.copy_report(&s).unwrap();
    assert!(report.delete && !report.deleted && report.problem.contains("still being made"), "{report:?}");
    assert_eq!(bench.copying[0].of, s);
    bench.make();
    assert!(bench.copy_report(&s).unwrap().deleted);
    assert_eq!(bench.copy_report(&c).unwrap().made, Some(7));
    // The store has forgotten the snapshot, and knows that the volume is made.
    let mut next = slice(4, 5, &[]);
    next.volumes.push(OwnedVolume { name: name("c"), ..next.volumes[0].clone() });
    bench.input(Input::Slice(&next));
    assert!(bench.agent.saved().copies.is_empty());
    assert!(bench.agent.describe().volumes.iter().all(|volume| volume.enforced));
}

#[test]
fn a_volume_that_is_not_made_yet_is_served_to_nothing() {
    let (_, v) = data();
    let c = Data::Volume(name("c"));
    let mut bench = Bench::with_volume(true, &[]);
    // A controller of an earlier version takes it for an ordinary volume.
    let mut both = slice_with(2, 5, &[], &[copy(&c, &v, 5)]);
    both.volumes.push(OwnedVolume { name: name("c"), ..both.volumes[0].clone() });
    both.volumes.rotate_right(1);
    bench.input(Input::Slice(&slice_with(2, 5, &[], &[copy(&c, &v, 5)])));
    both.seen.revision = 3;
    bench.input(Input::Slice(&both));
    let enforced = |bench: &Bench| bench.agent.describe().volumes.iter().all(|volume| volume.enforced);
    assert!(!enforced(&bench));
    bench.make();
    assert!(enforced(&bench));
}

#[test]
fn another_snapshot_of_the_name_is_taken_when_the_first_has_gone() {
    let (s, v) = data();
    let mut bench = Bench::with_volume(true, &[]);
    bench.input(Input::Slice(&slice_with(2, 5, &[], &[copy(&s, &v, 6)])));
    bench.make();
    bench.input(Input::Slice(&slice_with(3, 5, &[], &[copy(&s, &v, 8)])));
    assert!(matches!(bench.refusals[..], [Refusal::Copy { .. }]));
    assert_eq!(bench.copy_report(&s).unwrap().epoch.number, 6);
    let deleted = OwnedCopy { delete: true, ..copy(&s, &v, 6) };
    bench.input(Input::Slice(&slice_with(4, 5, &[], &[deleted])));
    assert!(bench.copy_report(&s).unwrap().deleted);
    bench.input(Input::Slice(&slice_with(5, 5, &[], &[copy(&s, &v, 8)])));
    bench.make();
    assert_eq!(bench.copy_report(&s).unwrap().epoch.number, 8);
    assert_eq!(bench.observation.copies.present.len(), 1);
}

#[test]
fn an_earlier_version_of_either_side_cuts_no_tunnel() {
    let by = |transport| Admission { transport, ..admission("a", 5) };
    let (tunnel, none) = (by(Transport::Tunnel), by(Transport::NvmeTcp));
    let mut bench = Bench::new();
    let saved = |bench: &Bench| bench.agent.saved().volumes[&name("v")].admitted.clone();
    // An agent of an earlier version has saved the list without the transport.
    bench.input(Input::Slice(&slice(1, 5, core::slice::from_ref(&none))));
    bench.input(Input::Slice(&slice(2, 5, core::slice::from_ref(&tunnel))));
    assert_eq!(saved(&bench), core::slice::from_ref(&tunnel));
    // A controller of an earlier version sends the list without it.
    bench.input(Input::Slice(&slice(3, 5, core::slice::from_ref(&none))));
    assert_eq!(saved(&bench), [tunnel]);
    // Another epoch is another use.
    let later = Admission { transport: Transport::NvmeTcp, ..admission("a", 6) };
    bench.input(Input::Slice(&slice(4, 6, core::slice::from_ref(&later))));
    assert_eq!(saved(&bench), [later]);
}
