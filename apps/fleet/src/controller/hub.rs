//! The task that drives the engine of a controller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{Engine, settle};
use fleet::controller::{ApiError, Call, CallId, Input, Output, Reply};
use fleet::object::{Key, Kind, Object};
use fleet::placement::Prediction;
use fleet::store::{Event as Change, Revision};
use fleet::{Controller, Name};
use live::sys::clock::Clock;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::api::{Failure, FailureCode};
use crate::channel::AgentLink;
use crate::store::{self, Store};
use crate::wire::{Credential, FromAgent, Slice, ToAgent, Wire};

/// Requests that wait for the hub.
const REQUESTS_MAX: usize = 1024;
/// Changes that a watcher may be behind before it starts anew.
const CHANGES_MAX: usize = 4096;
/// How long a machine with the same key must have been silent before another one takes its place.
const IMPOSTOR_AFTER: Duration = Duration::from_secs(5);

/// A look at the engine, from the hub's task.
type Look = Box<dyn FnOnce(&State<'_>) + Send>;

/// What others ask the hub for.
enum Request {
    Call { call: Call, reply: oneshot::Sender<Result<Reply, ApiError>>, number: oneshot::Sender<CallId> },
    Left(CallId),
    Look(Look),
    Connected { identity: [u8; 32], boot: String, link: AgentLink },
    FromAgent { connection: u64, message: Option<FromAgent> },
    Predicted(Vec<Prediction>),
}

/// What a look sees.
#[derive(Debug)]
pub struct State<'a> {
    /// The engine.
    pub controller: &'a Controller,
    /// Why the store is away, if it is.
    pub store: Option<&'a str>,
    /// The machines whose agents are connected.
    pub connected: BTreeSet<Name>,
    /// What each owner says that the hosts of its volumes need.
    pub credentials: &'a BTreeMap<Name, Vec<Credential>>,
}

/// What watchers get.
#[derive(Clone, Debug)]
pub enum Feed {
    /// An object has changed, or has gone.
    Changed(Revision, Key, Option<Object>),
    /// Changes may have been missed: all is to be listed again.
    Reset,
}

/// A handle of the hub.
#[derive(Clone, Debug)]
pub struct Hub {
    requests: mpsc::Sender<Request>,
    feed: broadcast::Sender<Feed>,
}

impl Hub {
    /// Drives a controller on a store, in a task that ends with the store.
    pub fn start(store: Store) -> Self {
        let (requests, incoming) = mpsc::channel(REQUESTS_MAX);
        let (feed, _) = broadcast::channel(CHANGES_MAX);
        let hub = Self { requests, feed };
        let task = Task::new(store, hub.clone());
        tokio::spawn(task.run(incoming));
        hub
    }

    /// Has the engine handle a call, and waits for its reply at most until `until`.
    ///
    /// # Errors
    /// As the engine says, or when the time is over.
    pub async fn call(&self, call: Call, until: Instant) -> Result<Reply, Failure> {
        let (reply, mut replied) = oneshot::channel();
        let (number, numbered) = oneshot::channel();
        self.send(Request::Call { call, reply, number }).await?;
        let id = numbered.await.map_err(|_| ended())?;
        match tokio::time::timeout_at(until, &mut replied).await {
            Ok(Ok(result)) => Ok(result?),
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                self.send(Request::Left(id)).await?;
                Err(Failure::new(
                    FailureCode::Timeout,
                    "the wanted state has not come in time; what was wanted stays wanted",
                ))
            }
        }
    }

    /// Looks at the engine.
    ///
    /// # Errors
    /// When the hub has ended.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State<'_>) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let look: Look = Box::new(move |state| {
            let _ = answer.send(look(state));
        });
        self.send(Request::Look(look)).await?;
        answered.await.map_err(|_| ended())
    }

    /// Changes from now on.
    pub fn watch(&self) -> broadcast::Receiver<Feed> {
        self.feed.subscribe()
    }

    /// Takes the connection of an agent that has proved a key.
    ///
    /// # Errors
    /// When the hub has ended.
    pub async fn agent(&self, identity: [u8; 32], boot: String, link: AgentLink) -> Result<(), Failure> {
        self.send(Request::Connected { identity, boot, link }).await
    }

    /// Takes predictions, which replace earlier ones.
    ///
    /// # Errors
    /// When the hub has ended.
    pub async fn predicted(&self, predictions: Vec<Prediction>) -> Result<(), Failure> {
        self.send(Request::Predicted(predictions)).await
    }

    async fn send(&self, request: Request) -> Result<(), Failure> {
        self.requests.send(request).await.map_err(|_| ended())
    }
}

fn ended() -> Failure {
    Failure::new(FailureCode::NotLeader, "this controller is about to end: ask another")
}

/// An agent that is connected.
struct Agent {
    connection: u64,
    identity: [u8; 32],
    boot: String,
    heard: Instant,
    outgoing: mpsc::Sender<ToAgent>,
}

struct Task {
    engine: Controller,
    clock: Clock,
    store: Store,
    hub: Hub,
    /// Why the store is away, if it is.
    away: Option<String>,
    agents: BTreeMap<Name, Agent>,
    /// What each owner says that the hosts of its volumes need.
    credentials: BTreeMap<Name, Vec<Credential>>,
    calls: BTreeMap<CallId, oneshot::Sender<Result<Reply, ApiError>>>,
    next: u64,
}

impl Task {
    fn new(store: Store, hub: Hub) -> Self {
        Self {
            engine: Controller::new(),
            clock: Clock::start(),
            store,
            hub,
            away: None,
            agents: BTreeMap::new(),
            credentials: BTreeMap::new(),
            calls: BTreeMap::new(),
            next: 0,
        }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<Request>) {
        loop {
            let timer = self.engine.poll_timeout().map(|at| {
                let rest = at.as_nanos().saturating_sub(self.clock.now().as_nanos());
                Instant::now() + Duration::from_nanos(rest)
            });
            tokio::select! {
                event = self.store.events.recv() => match event {
                    Some(event) => self.on_store(event),
                    None => return tracing::error!("the store has ended, and the controller with it"),
                },
                request = incoming.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => return,
                },
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => self.settle(),
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.engine.handle_input(self.clock.now(), input);
        self.settle();
    }

    fn settle(&mut self) {
        let mut outputs = Vec::new();
        settle(&mut self.engine, self.clock.now(), |output| outputs.push(output));
        for output in outputs {
            self.on_output(output);
        }
    }

    fn on_output(&mut self, output: Output) {
        let request = match output {
            Output::Transact(number, transaction) => store::Request::Transact(number, transaction),
            Output::List(number) => store::Request::List(number),
            Output::Resign => store::Request::Resign,
            Output::Ask(node, term) => return self.send(&node, ToAgent::Ask { term }),
            Output::Slice(node, slice) => {
                let slice = Slice::wire(&slice);
                let credentials = self.credentials_for(&slice);
                return self.send(&node, ToAgent::Slice { slice, credentials });
            }
            Output::Reply(id, result) => {
                if let Some(reply) = self.calls.remove(&id) {
                    let _ = reply.send(result);
                }
                return;
            }
        };
        let _ = self.store.requests.send(request); // The end of the store is noticed at its events.
    }

    /// What the host of a slice needs, as the owners of its volumes say.
    fn credentials_for(&self, slice: &Slice) -> Vec<Credential> {
        let of_attachment = slice.attachments.iter().filter_map(|one| {
            let owner = one.owner.clone().pure().ok()?;
            let all = self.credentials.get(&owner)?;
            all.iter().find(|known| known.attachment == one.name && known.epoch == one.epoch)
        });
        of_attachment.cloned().collect()
    }

    /// Sends a message to an agent. One that takes nothing is disconnected, and starts anew.
    fn send(&mut self, node: &Name, message: ToAgent) {
        if let Some(agent) = self.agents.get(node)
            && agent.outgoing.try_send(message).is_err()
        {
            self.disconnect(node);
        }
    }

    fn disconnect(&mut self, node: &Name) {
        if self.agents.remove(node).is_some() {
            self.credentials.remove(node);
            tracing::info!("the agent of {node} is away");
            self.input(Input::Gone(node.clone()));
        }
    }

    fn on_store(&mut self, event: store::Event) {
        match event {
            store::Event::Elected(term) => {
                tracing::info!("this controller leads, in term {term}");
                self.input(Input::Elected(term));
            }
            store::Event::Deposed => {
                tracing::info!("this controller leads no longer");
                self.input(Input::Deposed);
                let nodes: Vec<_> = self.agents.keys().cloned().collect();
                nodes.iter().for_each(|node| self.disconnect(node));
            }
            store::Event::Answered(number, answer) => self.input(Input::Answered(number, answer)),
            store::Event::Changed(change) => {
                let feed = match &change {
                    Change::Changed { revision, key, object } => {
                        Feed::Changed(*revision, key.clone(), object.clone())
                    }
                    Change::Listed { .. } | Change::Compacted => Feed::Reset,
                };
                let concerns_nodes = !matches!(&feed, Feed::Changed(_, key, _) if key.kind != Kind::Node);
                self.input(Input::Store(change));
                let _ = self.hub.feed.send(feed); // There may be no watcher.
                if concerns_nodes {
                    self.check_identities();
                }
            }
            store::Event::BackedUp(..) => (), // Calls ask for no backups.
            store::Event::Reachable(Ok(())) => {
                if self.away.take().is_some() {
                    tracing::info!("the store is back");
                }
            }
            store::Event::Reachable(Err(why)) => {
                if self.away.as_ref() != Some(&why) {
                    tracing::warn!("the store is away: {why}; I/O goes on without it");
                }
                self.away = Some(why);
            }
        }
    }

    /// Disconnects agents whose machines are enrolled no longer.
    fn check_identities(&mut self) {
        let is_enrolled =
            |(node, agent): &(&Name, &Agent)| self.engine.node_with(&agent.identity) == Some(node);
        if !self.engine.is_ready() {
            return;
        }
        let gone: Vec<_> =
            self.agents.iter().filter(|one| !is_enrolled(one)).map(|(node, _)| node.clone()).collect();
        gone.iter().for_each(|node| self.disconnect(node));
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Call { call, reply, number } => {
                self.next += 1;
                let id = CallId(self.next);
                self.calls.insert(id, reply);
                let _ = number.send(id);
                self.input(Input::Call(id, call));
            }
            Request::Left(id) => {
                self.calls.remove(&id);
                self.input(Input::Left(id));
            }
            Request::Look(look) => look(&State {
                controller: &self.engine,
                store: self.away.as_deref(),
                connected: self.agents.keys().cloned().collect(),
                credentials: &self.credentials,
            }),
            Request::Connected { identity, boot, link } => self.on_connected(identity, boot, link),
            Request::FromAgent { connection, message } => self.on_agent(connection, message),
            Request::Predicted(predictions) => {
                predictions.into_iter().for_each(|one| self.input(Input::Predicted(one)));
            }
        }
    }

    fn on_connected(&mut self, identity: [u8; 32], boot: String, link: AgentLink) {
        if !self.engine.is_ready() {
            return; // The agent asks another controller.
        }
        let Some(node) = self.engine.node_with(&identity).cloned() else {
            let why = "no machine of the fleet has this key: farlane fleet join enrols one".to_owned();
            return refuse(&link, why);
        };
        if let Some(known) = self.agents.get(&node)
            && known.boot != boot
            && known.heard.elapsed() < IMPOSTOR_AFTER
        {
            let why = format!(
                "another machine with the key of {node} is connected: each machine needs a key of its own \
                 (farlane fleet join)"
            );
            tracing::warn!("refused a second machine with the key of {node}");
            return refuse(&link, why);
        }
        self.disconnect(&node);
        self.next += 1;
        let (connection, mut incoming, requests) = (self.next, link.incoming, self.hub.requests.clone());
        tokio::spawn(async move {
            loop {
                let message = incoming.recv().await;
                let is_end = message.is_none();
                if requests.send(Request::FromAgent { connection, message }).await.is_err() || is_end {
                    return;
                }
            }
        });
        let outgoing = link.outgoing;
        let heard = Instant::now();
        self.agents.insert(node.clone(), Agent { connection, identity, boot, heard, outgoing });
        tracing::info!("the agent of {node} is connected");
        self.input(Input::Hello(node));
    }

    fn on_agent(&mut self, connection: u64, message: Option<FromAgent>) {
        let found = self.agents.iter_mut().find(|(_, agent)| agent.connection == connection);
        let Some((node, agent)) = found else { return };
        let node = node.clone();
        agent.heard = Instant::now();
        match message {
            Some(FromAgent::Report { report, credentials }) => match report.pure() {
                Ok(report) => {
                    self.credentials.insert(node.clone(), credentials);
                    self.input(Input::Report(node, report));
                }
                Err(error) => {
                    tracing::warn!("the report of {node} is refused: {error}");
                    self.disconnect(&node);
                }
            },
            Some(FromAgent::Hello { .. } | FromAgent::Alive) => (),
            None => self.disconnect(&node),
        }
    }
}

/// Says why an agent is not taken. The connection then ends with its link.
fn refuse(link: &AgentLink, why: String) {
    let _ = link.outgoing.try_send(ToAgent::Refused { why });
}
