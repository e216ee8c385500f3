//! Where the time of a scenario's operations goes: follows the critical path of one operation of
//! each task, hop by hop.

use engine::Nanos;
use network_models::network::Side;
use network_models::trail::{self, Named, Part};

use crate::fabric_bench::FabricBench;
use crate::file::scenario::{LIMIT, Scenario};
use crate::test_bench::{Chain, Outcome, Place, Segment, Task, TestBench};

/// Where the time of one operation of a task went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The task's name.
    pub task: String,
    /// A description of the operation, such as `read of 4 KiB`.
    pub operation: String,
    /// How many operations of the task were measured.
    pub count: usize,
    /// The parts that make up the operation's time.
    pub chain: Chain,
    /// The places where the time can be spent, with their names, in order from the host to
    /// the device.
    pub places: Vec<(Place, String)>,
    /// The ways of the replications that frames pass, from the host to the device.
    pub ways: Vec<Way>,
}

/// One of the ways of a replication (IEEE 802.1CB), and how many frames of an operation's critical
/// path it brought first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The side that sends.
    pub side: Side,
    /// The place of the replication and the number of the way.
    pub way: trail::Way,
    /// The hops of the way, in the order in which frames pass them.
    pub hops: Vec<Place>,
    /// How many frames arrived over this way first.
    pub won: usize,
    /// How many frames passed the replication.
    pub of: usize,
}

impl Explained {
    /// The name of `place`.
    pub fn name(&self, place: Place) -> &str {
        self.places.iter().find(|(known, _)| *known == place).map_or("other operations", |(_, name)| name)
    }
}

/// The machines of a scenario.
enum Bench {
    Switch(Box<TestBench>),
    Fabric(Box<FabricBench>),
}

impl Bench {
    fn boot(&mut self) -> Result<Nanos, String> {
        match self {
            Self::Switch(bench) => bench.boot(),
            Self::Fabric(bench) => bench.boot(),
        }
    }

    fn run(&mut self, task: Task) -> Option<Outcome> {
        match self {
            Self::Switch(bench) => bench.run(task, LIMIT),
            Self::Fabric(bench) => bench.run(task, LIMIT),
        }
    }

    fn follow(&mut self, number: u64) {
        match self {
            Self::Switch(bench) => bench.follow(number),
            Self::Fabric(bench) => bench.follow(number),
        }
    }

    fn chain(&mut self) -> Option<Chain> {
        match self {
            Self::Switch(bench) => bench.chain(),
            Self::Fabric(bench) => bench.chain(),
        }
    }

    fn digest(&self) -> u64 {
        match self {
            Self::Switch(bench) => bench.digest(),
            Self::Fabric(bench) => bench.digest(),
        }
    }

    fn hops(&self, side: Side) -> Vec<Named> {
        match self {
            Self::Switch(bench) => {
                bench.network().map_or_else(Vec::new, |network| network.path(side).names())
            }
            Self::Fabric(bench) => bench.hops(side),
        }
    }

    fn places(&self) -> Vec<(Place, String)> {
        match self {
            Self::Switch(bench) => places(bench),
            Self::Fabric(bench) => fabric_places(bench),
        }
    }
}

/// Plays `scenario` twice. The first run finds the operation of each task at the quantile
/// `thousandths` of the task's latencies; the second run follows this operation.
///
/// # Errors
/// The part that did not come up or did not end, as a sentence.
pub fn explain(scenario: &Scenario, seed: u64, thousandths: usize) -> Result<Vec<Explained>, String> {
    if scenario.tasks().is_empty() {
        return Err("there is no [[task]] to explain".into());
    }
    let fresh = || match scenario.fabric_bench(seed) {
        Some(bench) => Bench::Fabric(Box::new(bench)),
        None => Bench::Switch(Box::new(scenario.bench(seed))),
    };
    let mut bench = fresh();
    bench.boot()?;
    let mut chosen = Vec::new();
    for (name, task) in scenario.tasks() {
        let outcome = bench.run(*task).ok_or_else(|| format!("task {name} does not end"))?;
        let mut order: Vec<usize> = (0..outcome.times.len()).collect();
        order.sort_by_key(|index| outcome.times[*index]);
        let place = (order.len() * thousandths.min(1000)).div_ceil(1000).max(1) - 1;
        let index = *order.get(place).ok_or_else(|| format!("task {name}: every operation failed"))?;
        chosen.push((outcome.numbers[index], outcome.times[index], outcome.times.len()));
    }
    let digest = bench.digest();
    let mut bench = fresh();
    bench.boot()?;
    let mut explained = Vec::new();
    for ((name, task), (number, latency, count)) in scenario.tasks().iter().zip(chosen) {
        bench.follow(number);
        bench.run(*task).ok_or_else(|| format!("task {name} does not end"))?;
        let chain = bench.chain().expect("the same operation ends again");
        assert_eq!(chain.latency, latency, "following an operation changes nothing of it");
        let (operation, places) = (operation(task), bench.places());
        let ways = ways(|side| bench.hops(side), &chain);
        explained.push(Explained { task: name.clone(), operation, count, chain, places, ways });
    }
    assert_eq!(digest, bench.digest(), "following an operation changes no event");
    Ok(explained)
}

fn operation(task: &Task) -> String {
    match task {
        Task::ConfigReads { .. } => "configuration read".into(),
        Task::Commands { kind, bytes, depth, .. } => {
            let kind = kind.name();
            let size = if bytes % 1024 == 0 { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") };
            match depth {
                1 => format!("{kind} of {size}"),
                depth => format!("{kind} of {size}, {depth} at a time"),
            }
        }
    }
}

/// The ways of all replications, and how many frames of `chain` each brought first.
fn ways(hops: impl Fn(Side) -> Vec<Named>, chain: &Chain) -> Vec<Way> {
    // Every hop that a frame passes has one segment of each part.
    let passed = |place| {
        let is_one = |segment: &&Segment| segment.place == place && segment.part == Part::Propagation;
        chain.segments.iter().filter(is_one).count()
    };
    let mut ways: Vec<Way> = Vec::new();
    for side in Side::BOTH {
        for (index, named) in hops(side).into_iter().enumerate() {
            let Some(way) = named.way else { continue };
            let hop = Place::Hop(side, index);
            match ways.last_mut().filter(|known| (known.side, known.way) == (side, way)) {
                Some(known) => known.hops.push(hop),
                None => {
                    let of = passed(Place::Hop(side, way.replication));
                    ways.push(Way { side, way, hops: vec![hop], won: passed(hop), of });
                }
            }
        }
    }
    ways
}

/// Adds the hops of both directions, from the host to the device.
fn each_hop(hops: impl Fn(Side) -> Vec<Named>, add: &mut impl FnMut(Place, &str)) {
    let [near, far] = Side::BOTH;
    for (side, way) in [(near, "there"), (far, "back")] {
        let hops = hops(side);
        let mut order: Vec<_> = hops.iter().enumerate().collect();
        // The way back passes the hops from the far end to the near end.
        if side == far {
            order.reverse();
        }
        for (index, Named { name, .. }) in order {
            let same = hops.iter().filter(|other| other.name == *name).count() > 1;
            let number = if same { format!(" (hop {})", index + 1) } else { String::new() };
            add(Place::Hop(side, index), &format!("{name}, {way}{number}"));
        }
    }
}

/// All places of a host and a controller of NVMe over Fabrics.
fn fabric_places(bench: &FabricBench) -> Vec<(Place, String)> {
    let [near, far] = Side::BOTH;
    let mut places = Vec::new();
    let mut add = |place, name: &str| places.push((place, name.to_owned()));
    add(Place::Host, "host");
    if bench.is_rdma() {
        add(Place::HostLink, "PCIe and memory, host");
        add(Place::Card(near), "card, host");
    } else {
        add(Place::Stack(near), "network stack, host");
    }
    each_hop(|side| bench.hops(side), &mut add);
    if bench.is_rdma() {
        add(Place::Card(far), "card, controller");
        add(Place::DeviceLink, "PCIe and memory, controller");
    } else {
        add(Place::Stack(far), "network stack, controller");
    }
    add(Place::Target, "controller");
    if bench.has_ssd() {
        add(Place::Ssd, "SSD");
    }
    places
}

/// All places of a bench with their names, from the host to the device.
fn places(bench: &TestBench) -> Vec<(Place, String)> {
    let mut places = vec![(Place::Host, "host".to_owned())];
    let Some(network) = bench.network() else {
        places.extend([(Place::HostLink, "PCIe".to_owned()), (Place::Ssd, "SSD".to_owned())]);
        return places;
    };
    let [near, far] = Side::BOTH;
    let mut add = |place, name: &str| places.push((place, name.to_owned()));
    add(Place::HostLink, "PCIe, host to switch");
    add(Place::Switch(near), "switch, near end");
    add(Place::Tunnel(near), "tunnel and TCP, there");
    add(Place::Stack(near), "network stack, near end");
    each_hop(|side| network.path(side).names(), &mut add);
    add(Place::Stack(far), "network stack, far end");
    add(Place::Tunnel(far), "tunnel and TCP, back");
    add(Place::Switch(far), "switch, far end");
    add(Place::DeviceLink, "PCIe, switch to SSD");
    add(Place::Ssd, "SSD");
    places
}

/// The share of `part` in `whole`, in thousandths.
pub fn thousandths(part: Nanos, whole: Nanos) -> u64 {
    part.get().saturating_mul(1000) / whole.get().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The scenarios of the gallery: file names and texts.
    fn gallery() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let folders = [folder.join("fabrics"), folder];
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let files = files.map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(path).unwrap())
            })
            // A load of an SSD alone has no operations of a host.
            .filter(|(_, text): &(String, String)| text.contains("[[task]]"))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn the_segments_of_every_scenario_of_the_gallery_add_up_to_what_was_measured() {
        let gallery = gallery();
        assert!(gallery.len() >= 4, "{gallery:?}");
        for (name, text) in gallery {
            // Fewer operations take less time, and are made of the same parts.
            let mut table: toml::Table = text.parse().unwrap();
            for task in table["task"].as_array_mut().unwrap() {
                task.as_table_mut().unwrap().insert("count".into(), 60.into());
            }
            let scenario = Scenario::parse(&toml::to_string(&table).unwrap()).unwrap();
            for thousandths in [0, 500, 1000] {
                for one in explain(&scenario, 1, thousandths).unwrap() {
                    check(&name, &one);
                }
            }
        }
    }

    fn check(scenario: &str, one: &Explained) {
        let about = format!("{scenario}, {}: {:#?}", one.task, one.chain);
        let mut at = Nanos::ZERO;
        for segment in &one.chain.segments {
            assert_eq!(segment.start, at, "{about}");
            at += segment.length;
        }
        assert_eq!(at, one.chain.latency, "{about}");
        if one.operation.contains("at a time") {
            return;
        }
        let places: BTreeSet<_> = one.chain.segments.iter().map(|segment| segment.place).collect();
        assert!(!places.contains(&Place::Others), "{about}");
        // Over a network, every way to the device passes every hop, there and back. Of the ways of
        // a replication, only the one that wins is passed.
        let idle = |place| one.ways.iter().any(|way| way.won == 0 && way.hops.contains(place));
        for (place, name) in &one.places {
            let seen = places.contains(place) || matches!(place, Place::Host) || idle(place);
            assert!(seen, "{name} was not passed: {about}");
        }
    }

    /// With lookahead, the switch answers the device's reads itself: the long way is passed once
    /// there and once back.
    #[test]
    fn what_the_switch_answers_itself_is_no_way_over_the_network() {
        let text = "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n\n[switch]\nlookahead = true\n\n\
            [[task]]\nkind = \"read\"\ncount = 20\n";
        let [one] = explain(&Scenario::parse(text).unwrap(), 1, 500).unwrap().try_into().unwrap();
        check("lookahead", &one);
        let hops = one.chain.segments.iter().filter(|segment| {
            matches!(segment.place, Place::Hop(..))
                && segment.part == network_models::trail::Part::Propagation
        });
        let hops: Vec<_> = hops.map(|segment| segment.length).collect();
        assert_eq!(hops, [Nanos::from_millis(1); 2], "{:#?}", one.chain);
    }

    /// Of two ways, the operation's time passes over the quicker one, hop by hop.
    #[test]
    fn a_replicated_frame_passes_the_way_that_wins() {
        let text = "[link]\n\n[[link.hop]]\nkind = \"replicated\"\n\n\
            [[link.hop.way]]\nlatency = \"3ms\"\nrate = \"1Gbit/s\"\n\n\
            [[link.hop.way]]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n\n\
            [[task]]\nkind = \"read\"\ncount = 20\n";
        for text in [text.to_owned(), format!("{text}\n[fabric]\nkind = \"tcp\"\n")] {
            let [one] = explain(&Scenario::parse(&text).unwrap(), 1, 500).unwrap().try_into().unwrap();
            check("replicated", &one);
            let ways: Vec<_> = one.ways.iter().map(|way| (way.side, way.way.number)).collect();
            let [near, far] = Side::BOTH;
            assert_eq!(ways, [(near, 1), (near, 2), (far, 1), (far, 2)]);
            for way in &one.ways {
                let won = if way.way.number == 2 { way.of } else { 0 };
                assert!(way.of > 0 && way.won == won, "{way:?}");
                assert!(
                    one.name(way.hops[0]).starts_with(&format!("way {}: wire, 1 Gbit/s, ", way.way.number))
                );
                let time = one.chain.segments.iter().filter(|segment| way.hops.contains(&segment.place));
                let time = time.fold(Nanos::ZERO, |sum, segment| sum + segment.length);
                assert!(time >= Nanos::from_millis(1) * way.won as u64, "{way:?}: {time}");
            }
        }
    }

    #[test]
    fn commands_that_share_the_queue_wait_for_each_other() {
        let text = "[link]\nlatency = \"1ms\"\nrate = \"100Mbit/s\"\n\n\
            [[task]]\nkind = \"write\"\ncount = 60\ndepth = 16\n";
        let [one] = explain(&Scenario::parse(text).unwrap(), 1, 500).unwrap().try_into().unwrap();
        assert_eq!(one.operation, "write of 4 KiB, 16 at a time");
        check("deep", &one);
    }
}
