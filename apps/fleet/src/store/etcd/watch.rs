//! Lists of all objects, and the watch that follows.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, WatchOptions};
use fleet::store::Event as Change;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::link::{CALL, Failure, Link, Links, jitter};
use super::{Keys, MESSAGE_MAX};
use crate::store::{Event, codec};

/// The most objects in one answer of etcd.
const PAGE: i64 = 500;
/// How often a watch looks whether its link is still the one that is used.
const LOOK: Duration = Duration::from_secs(1);
/// How long a watch is trusted. Releases of etcd before 3.5.17 may lose events around a compaction:
/// the list that follows has what a watch has lost.
const TRUST: Duration = Duration::from_secs(600);
/// The pause before a watch is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// The pages of a list that compactions may spoil in a row.
const SPOILT_MAX: u32 = 5;

/// Lists, then watches, until something ends that.
pub(super) async fn list_and_watch(
    links: Arc<Links>,
    keys: Arc<Keys>,
    term: u64,
    number: u64,
    events: UnboundedSender<Event>,
) -> Failure {
    let (revision, list) = loop {
        match list(&links, &keys, number).await {
            Ok(list) => break list,
            Err(Failure::Away(_)) => sleep(jitter(AGAIN)).await,
            Err(failure) => return failure,
        }
    };
    let _ = events.send(Event::Changed(list));
    let mut watch = Watch { links, keys, term, events, seen: revision };
    let until = Instant::now() + jitter(TRUST);
    loop {
        match watch.follow(until).await {
            Failure::Away(_) => sleep(jitter(AGAIN)).await,
            failure => return failure,
        }
    }
}

/// All objects, at one revision.
pub(super) async fn list(links: &Links, keys: &Keys, number: u64) -> Result<(i64, Change), Failure> {
    let mut spoilt = 0;
    loop {
        match list_once(links, keys, number).await {
            // The revision was compacted between two pages.
            Err(Failure::Compacted) if spoilt < SPOILT_MAX => spoilt += 1,
            Err(Failure::Compacted) => {
                return Err(Failure::Away("etcd compacts faster than it is listed".to_owned()));
            }
            other => return other,
        }
    }
}

async fn list_once(links: &Links, keys: &Keys, number: u64) -> Result<(i64, Change), Failure> {
    let mut objects = Vec::new();
    let mut from = keys.prefix.clone().into_bytes();
    let mut at = 0;
    loop {
        let options = GetOptions::new().with_range(keys.end()).with_limit(PAGE).with_revision(at);
        let floor = links.known();
        let key = from.clone();
        let page = links.call(CALL, async move |client| {
            let mut client = client.kv_client().max_decoding_message_size(MESSAGE_MAX);
            client.get(key, Some(options)).await
        });
        let page = page.await?;
        links.check(floor, page.header())?;
        if at == 0 {
            at = page.header().map_or(0, etcd_client::ResponseHeader::revision);
        }
        for one in page.kvs() {
            let Some(key) = keys.parse(one.key()) else { continue };
            let object = codec::decode(&key, one.value()).map_err(Failure::Refused)?;
            objects.push((key, revision_of(one)?, object));
        }
        match page.kvs().last() {
            Some(last) if page.more() => {
                from = last.key().to_vec();
                from.push(0);
            }
            _ => {
                let revision = u64::try_from(at).map_err(|_| negative(at))?;
                return Ok((at, Change::Listed { number, revision, objects }));
            }
        }
    }
}

fn negative(revision: i64) -> Failure {
    Failure::Away(format!("etcd has answered with revision {revision}"))
}

fn revision_of(one: &KeyValue) -> Result<u64, Failure> {
    u64::try_from(one.mod_revision()).map_err(|_| negative(one.mod_revision()))
}

struct Watch {
    links: Arc<Links>,
    keys: Arc<Keys>,
    term: u64,
    events: UnboundedSender<Event>,
    /// The revision up to which all events were seen.
    seen: i64,
}

impl Watch {
    /// Reports changes, until the link fails or the watch can't go on.
    async fn follow(&mut self, until: Instant) -> Failure {
        let link = match timeout(CALL, self.links.get()).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return failure,
            Err(_) => return Failure::Away("no member of etcd answers".to_owned()),
        };
        let options = WatchOptions::new().with_range(self.keys.end()).with_start_revision(self.seen + 1);
        let mut client = link.client.watch_client().max_decoding_message_size(MESSAGE_MAX);
        let stream = timeout(CALL, client.watch(self.keys.prefix.as_str(), Some(options))).await;
        let mut stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.on_error(&link, &error),
            Err(_) => {
                self.links.leave(&link);
                return Failure::Away("no answer to a watch".to_owned());
            }
        };
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(response)) => if let Err(failure) = self.on_response(&response) {
                        return failure;
                    },
                    Ok(None) => return Failure::Away("a watch has ended".to_owned()),
                    Err(error) => return self.on_error(&link, &error),
                },
                _ = looks.tick() => {
                    if !self.links.is_current(&link) {
                        return Failure::Away("another member is used".to_owned());
                    }
                    if until <= Instant::now() {
                        return Failure::Compacted;
                    }
                }
            }
        }
    }

    fn on_error(&self, link: &Link, error: &etcd_client::Error) -> Failure {
        if error.to_string().contains("message length too large") {
            // More has changed than one message holds: a list has pages.
            return Failure::Compacted;
        }
        let failure = Failure::of(error);
        if matches!(failure, Failure::Away(_)) {
            self.links.leave(link);
        }
        failure
    }

    fn on_response(&mut self, response: &etcd_client::WatchResponse) -> Result<(), Failure> {
        if response.compact_revision() > 0 {
            return Err(Failure::Compacted);
        }
        if response.canceled() {
            let reason = response.cancel_reason();
            return Err(if reason.contains("permission denied") {
                Failure::Refused(format!("etcd refuses a watch ({reason}): its user needs a role"))
            } else {
                Failure::Away(format!("etcd has ended a watch: {reason}"))
            });
        }
        let mut latest = self.seen;
        for event in response.events() {
            let Some(one) = event.kv() else { continue };
            let revision = one.mod_revision();
            if revision <= self.seen {
                continue; // Seen before the watch was made again.
            }
            latest = latest.max(revision);
            self.on_change(one)?;
        }
        self.seen = latest;
        Ok(())
    }

    fn on_change(&self, one: &KeyValue) -> Result<(), Failure> {
        // Only a key that exists has a version.
        let is_there = one.version() > 0;
        if one.key() == self.keys.leader.as_bytes() {
            let is_own = is_there && u64::try_from(one.create_revision()) == Ok(self.term);
            return if is_own { Ok(()) } else { Err(super::deposed()) };
        }
        let Some(key) = self.keys.parse(one.key()) else { return Ok(()) };
        let object = is_there.then(|| codec::decode(&key, one.value())).transpose();
        let object = object.map_err(Failure::Refused)?;
        let change = Change::Changed { revision: revision_of(one)?, key, object };
        let _ = self.events.send(Event::Changed(change));
        Ok(())
    }
}
