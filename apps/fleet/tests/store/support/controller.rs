//! A controller that does what tests say.

use std::collections::VecDeque;
use std::time::Duration;

use fleet::Name;
use fleet::object::{Fleet, Key, Kind, Object};
use fleet::store::{Answer, Event as Change, Revision, Transaction};
use fleetd::store::{Event, Request, Store};
use tokio::time::{Instant, timeout_at};

/// The time in which whatever a test waits for has to come.
pub(crate) const SOON: Duration = Duration::from_secs(40);

pub(crate) fn key(name: &str) -> Key {
    Key { kind: Kind::Fleet, name: Name::new(name).unwrap() }
}

pub(crate) fn object(number: u64) -> Object {
    Object::Fleet(Fleet { incarnation: number })
}

/// A controller, and its events that no test has looked at.
pub(crate) struct Controller {
    pub(crate) store: Store,
    waiting: VecDeque<Event>,
    number: u64,
    pub(crate) term: u64,
}

impl Controller {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, waiting: VecDeque::new(), number: 0, term: 0 }
    }

    pub(crate) fn request(&self, request: Request) {
        self.store.requests.send(request).unwrap();
    }

    /// The first event that `wanted` makes something of; those before it stay.
    pub(crate) async fn wait<T>(&mut self, what: &str, wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let found = self.wait_for(SOON, wanted).await;
        found.unwrap_or_else(|| panic!("waited in vain for {what}; there was {:?}", self.waiting))
    }

    pub(crate) async fn wait_for<T>(
        &mut self,
        time: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + time;
        let mut at = 0;
        loop {
            while let Some(event) = self.waiting.get(at) {
                if let Some(found) = wanted(event) {
                    self.waiting.remove(at);
                    return Some(found);
                }
                at += 1;
            }
            let event = timeout_at(until, self.store.events.recv()).await.ok()?;
            self.waiting.push_back(event.expect("the store has ended"));
        }
    }

    /// Waits for an election.
    pub(crate) async fn elected(&mut self) -> u64 {
        let elected = |event: &Event| match event {
            Event::Elected(term) => Some(*term),
            _ => None,
        };
        self.term = self.wait("an election", elected).await;
        self.term
    }

    pub(crate) async fn deposed(&mut self) {
        self.wait("a deposition", |event| matches!(event, Event::Deposed).then_some(())).await;
    }

    pub(crate) async fn away(&mut self) -> String {
        let away = |event: &Event| match event {
            Event::Reachable(Err(reason)) => Some(reason.clone()),
            _ => None,
        };
        self.wait("a reason why the store is away", away).await
    }

    pub(crate) async fn back(&mut self) {
        self.wait("the store to be back", |event| matches!(event, Event::Reachable(Ok(()))).then_some(()))
            .await;
    }

    /// Sends a transaction of the present term. Returns its number.
    pub(crate) fn send(&mut self, compares: &[(&str, Revision)], writes: &[(&str, Option<u64>)]) -> u64 {
        let compares = compares.iter().map(|(name, revision)| (key(name), *revision)).collect();
        let writes = writes.iter().map(|(name, number)| (key(name), number.map(object))).collect();
        self.number += 1;
        let transaction = Transaction { term: self.term, compares, writes };
        self.request(Request::Transact(self.number, transaction));
        self.number
    }

    pub(crate) async fn answer(&mut self, number: u64) -> Answer {
        let wanted = |event: &Event| match event {
            Event::Answered(known, answer) if *known == number => Some(*answer),
            _ => None,
        };
        self.wait("an answer", wanted).await
    }

    pub(crate) async fn transact(
        &mut self,
        compares: &[(&str, Revision)],
        writes: &[(&str, Option<u64>)],
    ) -> Answer {
        let number = self.send(compares, writes);
        self.answer(number).await
    }

    /// A transaction that has to be applied. Returns its revision.
    pub(crate) async fn set(
        &mut self,
        compares: &[(&str, Revision)],
        writes: &[(&str, Option<u64>)],
    ) -> Revision {
        match self.transact(compares, writes).await {
            Answer::Done(revision) => revision,
            other => panic!("{other:?} to {compares:?} {writes:?}"),
        }
    }

    /// Lists the store: its revision, and the objects by name with their revisions and numbers.
    pub(crate) async fn list(&mut self) -> (Revision, Vec<(String, Revision, u64)>) {
        for _ in 0..8 {
            self.number += 1;
            let number = self.number;
            self.request(Request::List(number));
            let listed = |event: &Event| match event {
                Event::Changed(Change::Listed { number: known, revision, objects }) if *known == number => {
                    Some((*revision, objects.clone()))
                }
                _ => None,
            };
            if let Some((revision, objects)) = self.wait_for(SOON / 8, listed).await {
                let one = |(key, at, object): &(Key, Revision, Object)| {
                    (key.name.to_string(), *at, number_of(object))
                };
                return (revision, objects.iter().map(one).collect());
            }
            // The term has ended before the list: the next one begins with a list.
            let elected = |event: &Event| match event {
                Event::Elected(term) => Some(*term),
                _ => None,
            };
            while let Some(term) = self.wait_for(Duration::ZERO, elected).await {
                self.term = term;
            }
        }
        panic!("no list; there was {:?}", self.waiting);
    }

    /// The next change of the watch.
    pub(crate) async fn change(&mut self) -> (Revision, String, Option<u64>) {
        let changed = |event: &Event| match event {
            Event::Changed(Change::Changed { revision, key, object }) => {
                Some((*revision, key.name.to_string(), object.as_ref().map(number_of)))
            }
            _ => None,
        };
        self.wait("a change", changed).await
    }

    pub(crate) async fn compacted(&mut self) {
        let compacted = |event: &Event| matches!(event, Event::Changed(Change::Compacted)).then_some(());
        self.wait("a compaction", compacted).await;
    }

    /// Ends the store, and waits until it has ended.
    pub(crate) async fn end(self) {
        let Store { requests, mut events } = self.store;
        drop(requests);
        while events.recv().await.is_some() {}
    }
}

fn number_of(object: &Object) -> u64 {
    match object {
        Object::Fleet(fleet) => fleet.incarnation,
        other => panic!("{other:?} was never written"),
    }
}
