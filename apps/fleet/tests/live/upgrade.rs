//! Upgrades of a fleet, one process after the other, beside a load that verifies its data.

use std::time::Duration;

use crate::stage::{Stage, Version};
use crate::support::Etcd;
use crate::tests::{Load, rounds};

/// How long a command of a host may take while its target is replaced.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A part of a fleet that is replaced at once.
#[derive(Clone, Copy, Debug)]
enum Part {
    Controller(usize),
    Agent(usize),
    Target(usize),
}

impl Part {
    /// Controllers first, and then each machine.
    const CONTROLLERS_FIRST: [Self; 6] = [
        Self::Controller(0),
        Self::Controller(1),
        Self::Agent(0),
        Self::Target(0),
        Self::Agent(1),
        Self::Target(1),
    ];

    /// Replaces the process of this part by one of the program that is installed.
    fn replace(self, stage: &mut Stage) {
        match self {
            Self::Controller(index) => {
                stage.controllers[index] = None;
                stage.start_controller(index);
            }
            Self::Agent(machine) => {
                stage.machines[machine].agent = None;
                stage.start_agent(machine);
            }
            Self::Target(machine) => {
                let Some(before) = stage.target_of(machine) else { return };
                stage.machines[machine].agent.as_ref().expect("an agent").signal("HUP");
                stage.eventually("the target is replaced", |stage| {
                    stage.target_of(machine).is_some_and(|target| target != before)
                });
            }
        }
    }
}

/// Replaces all parts in an order. After each of them, the fleet does its work: both versions know
/// each other.
fn upgrade(order: &[Part]) {
    let (Some(before), Some(current)) = (Version::before(), Version::current()) else { return };
    let Some(etcd) = Etcd::start() else { return };
    let store = format!("etcd://{}/live", etcd.endpoint());
    let mut stage = Stage::with(&before, Some(store), 2, 2);
    stage.fleet(&["volume", "create", "data", "--size", "64MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let record = stage.record(1, "data-m1");
    let mut load = Load::start(&stage, record);
    stage.install(&current);
    for (step, part) in order.iter().enumerate() {
        part.replace(&mut stage);
        let name = format!("v{step}");
        stage.eventually("a volume is made", |stage| {
            let words = ["volume", "create", &name, "--size", "1MiB", "--pool", "m0", "--timeout", "20s"];
            stage.try_fleet(&words).is_ok()
        });
        let attachment = format!("{name}-m1");
        stage.eventually("a volume is attached", |stage| {
            let attached = stage.try_fleet(&["attach", &name, "--node", "m1", "--timeout", "20s"]);
            attached.is_ok_and(|one| one["status"]["phase"] == "attached")
        });
        stage.fleet(&["detach", &attachment]);
        stage.fleet(&["volume", "delete", &name]);
        load.look(&stage);
    }
    let longest = load.end(&stage);
    println!("{order:?}: the longest command took {longest:?}");
    assert!(longest < PAUSE_MAX, "{longest:?}");
    assert_eq!(stage.fleet(&["get", "attachment", "data-m1"])["status"]["phase"], "attached");
    assert_eq!(stage.fleet(&["orphans"])["orphans"], serde_json::json!([]));
}

#[test]
fn an_upgrade_pauses_no_data_path_for_long() {
    let forward = Part::CONTROLLERS_FIRST;
    let mut backward = forward;
    backward.reverse();
    for round in 0..rounds(2) {
        upgrade(if round % 2 == 0 { &forward } else { &backward });
    }
}
