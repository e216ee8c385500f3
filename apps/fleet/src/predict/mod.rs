//! Predictions of the service of each pool, by which volumes are placed.
//!
//! The links between a host and the owner of a pool have scenarios, which the simulator plays. A
//! scenario is played once; a link that changes is played again.

mod simulate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet::Name;
use fleet::object::{Key, Link, Object};
use fleet::placement::Prediction;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::controller::{Feed, Hub, State};
use simulate::Simulated;

/// How long further changes are waited for before predictions are made anew.
const REST: Duration = Duration::from_millis(100);

/// Keeps the predictions of a controller up to date, until `stop` is true.
pub async fn keep(hub: Hub, mut stop: watch::Receiver<bool>) {
    let work = async {
        let mut feed = hub.watch();
        let mut played: BTreeMap<String, Result<Simulated, String>> = BTreeMap::new();
        let mut sent = Vec::new();
        loop {
            let Ok(wanted) = hub.look(wanted).await else { return };
            played.retain(|scenario, _| wanted.iter().any(|one| one.scenario == *scenario));
            for one in &wanted {
                if !played.contains_key(&one.scenario) {
                    let result = play(&one.scenario).await;
                    if let Err(why) = &result {
                        tracing::warn!("the link {} predicts nothing: {why}", one.link);
                    }
                    played.insert(one.scenario.clone(), result);
                }
            }
            let predictions = predictions(&wanted, &played);
            if predictions != sent {
                if hub.predicted(predictions.clone()).await.is_err() {
                    return;
                }
                sent = predictions;
            }
            if !changed(&mut feed).await {
                return;
            }
        }
    };
    tokio::select! {
        () = work => (),
        _ = stop.wait_for(|stop| *stop) => (),
    }
}

/// Waits for a change that concerns predictions; false if there will be none.
async fn changed(feed: &mut tokio::sync::broadcast::Receiver<Feed>) -> bool {
    loop {
        match feed.recv().await {
            Ok(Feed::Changed(_, Key { kind, .. }, _)) if !concerns(kind) => (),
            Ok(_) | Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => return false,
        }
    }
    sleep(REST).await;
    while !matches!(
        feed.try_recv(),
        Err(tokio::sync::broadcast::error::TryRecvError::Empty
            | tokio::sync::broadcast::error::TryRecvError::Closed)
    ) {}
    true
}

const fn concerns(kind: fleet::object::Kind) -> bool {
    use fleet::object::Kind;
    !matches!(kind, Kind::Fleet | Kind::Attachment | Kind::Token)
}

/// Plays a scenario on a thread for work that takes long.
async fn play(scenario: &str) -> Result<Simulated, String> {
    let scenario = scenario.to_owned();
    let played = tokio::task::spawn_blocking(move || simulate::play(&scenario));
    played.await.unwrap_or_else(|_| Err("the simulator has failed".to_owned()))
}

/// A prediction that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    class: Name,
    pool: Name,
    near: Option<Name>,
    link: Name,
    /// The labels at the link's ends, for people.
    ends: String,
    scenario: String,
}

/// The predictions that are needed now: of each class, for each host near which a volume is, from
/// each pool. Of several links between two machines, the first by name counts.
fn wanted(state: &State<'_>) -> Vec<Wanted> {
    let controller = state.controller;
    let (mut links, mut pools, mut classes, mut hosts) =
        (Vec::new(), Vec::new(), Vec::new(), BTreeSet::from([None]));
    for (key, object) in controller.objects() {
        match object {
            Object::Link(link) => links.push((&key.name, link)),
            Object::Pool(pool) => pools.push((&key.name, pool)),
            Object::Class(_) => classes.push(&key.name),
            Object::Volume(volume) => {
                hosts.insert(volume.near.clone());
            }
            _ => (),
        }
    }
    let mut wanted = Vec::new();
    for (pool, object) in &pools {
        let Some(owner) = controller.node(&object.node) else { continue };
        for near in &hosts {
            let host = match near {
                Some(near) => match controller.node(near) {
                    Some(host) => host,
                    None => continue,
                },
                None => owner, // A host beside the pool.
            };
            let joins = |(_, link): &&(&Name, &Link)| {
                let [a, b] = &link.between;
                let has = |labels: &BTreeMap<String, String>, node: &fleet::object::Node| {
                    labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                };
                has(a, host) && has(b, owner) || has(b, host) && has(a, owner)
            };
            let Some((link, found)) = links.iter().find(joins) else { continue };
            let ends = found.between.each_ref().map(words).join(" to ");
            wanted.extend(classes.iter().map(|class| Wanted {
                class: (*class).clone(),
                pool: (*pool).clone(),
                near: near.clone(),
                link: (*link).clone(),
                ends: ends.clone(),
                scenario: found.scenario.clone(),
            }));
        }
    }
    wanted
}

/// Labels as users write them.
fn words(labels: &BTreeMap<String, String>) -> String {
    let words: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { "any machine".to_owned() } else { words.join(",") }
}

fn predictions(wanted: &[Wanted], played: &BTreeMap<String, Result<Simulated, String>>) -> Vec<Prediction> {
    let predicted = wanted.iter().filter_map(|one| {
        let Ok(Simulated { p99, bandwidth, seed }) = played.get(&one.scenario)? else { return None };
        Some(Prediction {
            class: one.class.clone(),
            pool: one.pool.clone(),
            near: one.near.clone(),
            p99: *p99,
            bandwidth: *bandwidth,
            path: vec![format!("link {} ({}), simulated with seed {seed}", one.link, one.ends)],
        })
    });
    predicted.collect()
}
