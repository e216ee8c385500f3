//! A store in etcd, for a fleet with several controllers.
//!
//! The leader's key `/farlane/v1/CLUSTER/leader` has a lease; the revision of its creation is the
//! term. Each transaction compares that revision, so that etcd refuses those of earlier terms. A
//! leader that can't renew its lease deposes itself before etcd can have given the key to another.
//! Times are those of the machine's monotonic clock: a clock that is set does no harm.

mod link;
mod transact;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use fleet::Name;
use fleet::object::Key;
use fleet::store::{Answer, Event as Change, Transaction};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Event, Request, Store, StoreError, codec};
use link::{CALL, Failure, Links, jitter, pause};

/// How long a leader leads without renewing, in seconds.
const LEASE_SECONDS: i64 = 10;
/// How long before the end of its lease a leader deposes itself.
const MARGIN: Duration = Duration::from_secs(1);
/// How often a leader renews its lease.
const RENEW: Duration = Duration::from_millis(2500);
/// How often a follower looks whether there is a leader.
const POLL: Duration = Duration::from_millis(500);
/// The pause before a lease's renewal is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// The most transactions in flight. More wait.
const IN_FLIGHT_MAX: usize = 256;
/// The greatest message that is taken from etcd.
const MESSAGE_MAX: usize = 64 << 20;

/// How etcd is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The members, as `HOST:PORT`. One at a time is used.
    pub endpoints: Vec<String>,
    /// The name of the fleet in that etcd.
    pub cluster: Name,
    /// The certificates, if etcd demands them.
    pub tls: Option<Tls>,
    /// The user, if etcd wants one beside the certificate.
    pub user: Option<User>,
}

/// Certificates, as PEM files. They are read again for each connection.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate of the authority that has signed those of etcd's members.
    pub ca: PathBuf,
    /// The controller's own certificate.
    pub certificate: PathBuf,
    /// The key that goes with it.
    pub key: PathBuf,
}

/// A user of etcd.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Opens the store of a fleet in etcd. A task serves it until its sender of requests is dropped.
/// Etcd may be away meanwhile, also at first.
///
/// # Errors
/// When the settings are of no use: no endpoint, or a certificate that can't be read.
pub async fn open(settings: Settings) -> Result<Store, StoreError> {
    if settings.endpoints.is_empty() {
        return Err(StoreError::Settings("etcd needs an endpoint, as HOST:PORT".to_owned()));
    }
    if let Some(tls) = settings.tls.clone() {
        let read = tokio::task::spawn_blocking(move || link::read_tls(&tls).map(drop)).await;
        read.map_err(|error| StoreError::Settings(error.to_string()))??;
    }
    let (requests, incoming) = unbounded_channel();
    let (outgoing, events) = unbounded_channel();
    let keys = Arc::new(Keys::new(&settings.cluster));
    let links = Arc::new(Links::new(settings));
    let reports = Reports { events: outgoing.clone(), reason: Arc::default() };
    let (lease, luckless, unreadable) = (None, 0, false);
    let worker =
        Worker { links, keys, requests: incoming, events: outgoing, reports, lease, luckless, unreadable };
    tokio::spawn(worker.run());
    Ok(Store { requests, events })
}

/// The keys of a fleet.
struct Keys {
    prefix: String,
    leader: String,
}

impl Keys {
    fn new(cluster: &Name) -> Self {
        let prefix = format!("/farlane/v1/{cluster}/");
        Self { leader: format!("{prefix}leader"), prefix }
    }

    /// The first key behind those of the fleet.
    fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        end.pop();
        end.push(b'/' + 1);
        end
    }

    fn text(&self, key: &Key) -> String {
        format!("{}{}", self.prefix, codec::text(key))
    }

    fn parse(&self, key: &[u8]) -> Option<Key> {
        codec::parse(std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?)
    }
}

/// Reports whether etcd is there, when that changes.
#[derive(Clone)]
struct Reports {
    events: UnboundedSender<Event>,
    /// The reason that was reported last, while there is one.
    reason: Arc<Mutex<Option<String>>>,
}

impl Reports {
    fn away(&self, failure: &Failure) {
        let reason = failure.to_string();
        let mut known = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        // Members that are away give many reasons, of which the first is enough.
        let is_news = match (&*known, failure) {
            (None, _) => true,
            (Some(_), Failure::Away(_)) => false,
            (Some(known), _) => *known != reason,
        };
        if is_news {
            *known = Some(reason.clone());
            let _ = self.events.send(Event::Reachable(Err(reason)));
        }
    }

    fn back(&self) {
        let known = self.reason.lock().unwrap_or_else(PoisonError::into_inner).take();
        if known.is_some() {
            let _ = self.events.send(Event::Reachable(Ok(())));
        }
    }
}

/// The controller's term, with the lease that it has.
struct Term {
    number: u64,
    lease: i64,
    /// Until when the controller may lead.
    until: Instant,
}

/// Why a term has ended.
enum End {
    /// The controller has asked for it.
    Resigned,
    /// The controller has gone.
    Closed,
    /// Etcd is away, or refuses something.
    Failed(Failure),
}

fn too_late() -> Failure {
    Failure::Away("etcd was away for so long that the controller's lease may have ended".to_owned())
}

fn deposed() -> Failure {
    Failure::Refused("the leader's key in etcd is no longer this controller's".to_owned())
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The transactions in flight: their numbers, and what becomes of them.
#[derive(Default)]
struct InFlight {
    numbers: BTreeSet<u64>,
    answers: FuturesUnordered<Boxed<(u64, Answer, Option<Failure>)>>,
}

struct Worker {
    links: Arc<Links>,
    keys: Arc<Keys>,
    requests: UnboundedReceiver<Request>,
    events: UnboundedSender<Event>,
    reports: Reports,
    /// A lease that was granted, until it is revoked.
    lease: Option<i64>,
    /// The terms in a row in which nothing was done.
    luckless: u32,
    /// Whether the latest term has ended because an object can't be read, or a user may not.
    unreadable: bool,
}

impl Worker {
    async fn run(mut self) {
        while let Some(term) = self.campaign().await {
            self.reports.back();
            self.send(Event::Elected(term.number));
            self.luckless = self.luckless.saturating_add(1);
            let end = self.lead(term).await;
            self.send(Event::Deposed);
            match end {
                End::Closed => break,
                End::Resigned => (),
                End::Failed(failure) => {
                    self.unreadable = matches!(failure, Failure::Refused(_));
                    self.reports.away(&failure);
                }
            }
        }
        let _ = timeout(CALL, self.give_lease_back()).await;
    }

    fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Waits until the controller leads. `None` if the controller has gone.
    async fn campaign(&mut self) -> Option<Term> {
        let mut wait = if self.luckless > 1 { jitter(pause(self.luckless)) } else { Duration::ZERO };
        loop {
            self.refuse_for(wait).await?;
            wait = jitter(POLL);
            match self.stand().await {
                Ok(Some(term)) => return Some(term),
                Ok(None) => self.reports.back(),
                Err(failure) => self.reports.away(&failure),
            }
        }
    }

    /// Refuses requests for a while. `None` if the controller has gone.
    async fn refuse_for(&mut self, wait: Duration) -> Option<()> {
        let end = sleep(wait);
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                request = self.requests.recv() => self.refuse(&request?),
                () = &mut end => return Some(()),
            }
        }
    }

    /// Answers a request that comes while the controller does not lead.
    fn refuse(&self, request: &Request) {
        match request {
            // Nothing was sent.
            Request::Transact(number, _) => self.send(Event::Answered(*number, Answer::Conflict)),
            Request::Backup(number, _) => self.send(no_backup(*number)),
            Request::List(_) | Request::Resign => (),
        }
    }

    /// Stands for a term once. `None` if another controller leads.
    async fn stand(&mut self) -> Result<Option<Term>, Failure> {
        self.give_lease_back().await?;
        let floor = self.links.known();
        let leader = self.keys.leader.clone();
        let found = self.links.call(CALL, async move |client| client.kv_client().get(leader, None).await);
        let found = found.await?;
        self.links.check(floor, found.header())?;
        if !found.kvs().is_empty() {
            return Ok(None);
        }
        if self.unreadable {
            watch::list(&self.links, &self.keys, 0).await?;
            self.unreadable = false;
        }
        let begun = Instant::now();
        let grant =
            async move |client: etcd_client::Client| client.lease_client().grant(LEASE_SECONDS, None).await;
        let granted = self.links.call(CALL, grant).await?;
        let lease = granted.id();
        self.lease = Some(lease);
        let leader = self.keys.leader.as_str();
        let is_free = Compare::create_revision(leader, CompareOp::Equal, 0);
        let put = TxnOp::put(leader, words(), Some(PutOptions::new().with_lease(lease)));
        let txn = Txn::new().when([is_free]).and_then([put]);
        let floor = self.links.known();
        let won = self.links.call(CALL, async move |client| client.kv_client().txn(txn).await).await?;
        let number = self.links.check(floor, won.header())?;
        Ok(won.succeeded().then(|| Term { number, lease, until: begun + lasting(granted.ttl()) }))
    }

    /// Gives back the lease of an earlier term, and with it the leader's key, unless the lease has
    /// ended by itself.
    async fn give_lease_back(&mut self) -> Result<(), Failure> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        let revoke = async move |client: etcd_client::Client| client.lease_client().revoke(lease).await;
        match self.links.call(CALL, revoke).await {
            Err(failure @ Failure::Away(_)) => {
                self.lease = Some(lease);
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Leads, until the term ends.
    async fn lead(&mut self, mut term: Term) -> End {
        let mut in_flight = InFlight::default();
        let mut watching: Option<Boxed<Failure>> = None;
        let mut renewal = self.renew(&term);
        let end = loop {
            tokio::select! {
                biased;
                () = sleep_until(term.until) => break End::Failed(too_late()),
                renewed = &mut renewal => match renewed {
                    Ok(until) => {
                        term.until = until;
                        self.reports.back();
                        renewal = self.renew(&term);
                    }
                    Err(failure) => break End::Failed(failure),
                },
                Some((number, answer, failure)) = in_flight.answers.next() => {
                    in_flight.numbers.remove(&number);
                    self.send(Event::Answered(number, answer));
                    match failure {
                        Some(failure @ Failure::WentBack(_)) => break End::Failed(failure),
                        Some(failure) => self.reports.away(&failure),
                        None => self.luckless = 0,
                    }
                },
                failure = async { watching.as_mut().expect("the guard has looked").await },
                        if watching.is_some() => {
                    watching = None;
                    match failure {
                        Failure::Compacted => self.send(Event::Changed(Change::Compacted)),
                        failure => break End::Failed(failure),
                    }
                },
                request = self.requests.recv(), if in_flight.numbers.len() < IN_FLIGHT_MAX => match request {
                    None => break End::Closed,
                    // A process that was stopped may see the request before the end of its lease.
                    Some(request) if term.until <= Instant::now() => {
                        self.refuse(&request);
                        break End::Failed(too_late());
                    }
                    Some(Request::Transact(number, transaction)) => {
                        self.transact(&term, number, transaction, &mut in_flight);
                    }
                    Some(Request::List(number)) => watching = Some(self.list_and_watch(&term, number)),
                    Some(Request::Backup(number, _)) => self.send(no_backup(number)),
                    Some(Request::Resign) => break End::Resigned,
                },
            }
        };
        for number in in_flight.numbers {
            self.send(Event::Answered(number, Answer::Unknown));
        }
        end
    }

    fn transact(&self, term: &Term, number: u64, transaction: Transaction, in_flight: &mut InFlight) {
        if transaction.term != term.number {
            return self.send(Event::Answered(number, Answer::Conflict));
        }
        in_flight.numbers.insert(number);
        let (links, keys, reports) = (self.links.clone(), self.keys.clone(), self.reports.clone());
        in_flight.answers.push(Box::pin(async move {
            let report = |failure: &Failure| reports.away(failure);
            let (answer, failure) = transact::transact(&links, &keys, &transaction, report).await;
            (number, answer, failure)
        }));
    }

    fn list_and_watch(&self, term: &Term, number: u64) -> Boxed<Failure> {
        let (links, keys, events) = (self.links.clone(), self.keys.clone(), self.events.clone());
        Box::pin(watch::list_and_watch(links, keys, term.number, number, events))
    }

    /// Renews the lease once that is due, until it is renewed or lost. The result is the time until
    /// which the controller may lead.
    fn renew(&self, term: &Term) -> Boxed<Result<Instant, Failure>> {
        let (links, keys, reports) = (self.links.clone(), self.keys.clone(), self.reports.clone());
        let (number, lease) = (term.number, term.lease);
        let next = Instant::now() + RENEW;
        Box::pin(async move {
            sleep_until(next).await;
            loop {
                let begun = Instant::now();
                let keep =
                    async move |client: etcd_client::Client| client.lease_client().keep_alive(lease).await;
                match links.call(CALL, keep).await {
                    Ok(_) => {
                        return match still_leads(&links, &keys, number).await {
                            Ok(()) | Err(Failure::Away(_)) => Ok(begun + lasting(LEASE_SECONDS)),
                            Err(failure) => Err(failure),
                        };
                    }
                    Err(failure @ (Failure::Away(_) | Failure::Full(_))) => reports.away(&failure),
                    Err(failure) => return Err(failure),
                }
                sleep(jitter(AGAIN)).await;
            }
        })
    }
}

/// Checks that the leader's key is of this term, in a store that knows no less than before.
async fn still_leads(links: &Links, keys: &Keys, term: u64) -> Result<(), Failure> {
    let (leader, floor) = (keys.leader.clone(), links.known());
    let options = GetOptions::new().with_keys_only();
    let get = async move |client: etcd_client::Client| client.kv_client().get(leader, Some(options)).await;
    let found = links.call(CALL, get).await?;
    links.check(floor, found.header())?;
    let is_own = found.kvs().first().is_some_and(|one| u64::try_from(one.create_revision()) == Ok(term));
    is_own.then_some(()).ok_or_else(deposed)
}

/// How long a controller may lead on a lease of so many seconds.
fn lasting(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(MARGIN)
}

fn no_backup(number: u64) -> Event {
    let reason = "etcd has its own backups: run `etcdctl snapshot save FILE`";
    Event::BackedUp(number, Err(reason.to_owned()))
}

/// The value of the leader's key, for people: the process that leads.
fn words() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}
