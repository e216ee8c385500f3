//! The connection with etcd: one member at a time, another one when a call fails.

use std::error::Error;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex as Brief, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, ResponseHeader, TlsOptions};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{Settings, Tls};
use crate::store::StoreError;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a call may take.
pub(super) const CALL: Duration = Duration::from_secs(2);
/// The pauses between attempts to reach etcd, once no member has answered: the first, the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// How often an idle connection is probed. Servers refuse to be probed more often than each 5 s.
const PROBE: Duration = Duration::from_secs(10);

/// Why a call has failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// No answer, or one that says nothing of what happened.
    Away(String),
    /// Nothing was done, and nothing will be before an operator acts.
    Refused(String),
    /// Nothing was done, because etcd has no space or too much to do.
    Full(String),
    /// The revision that was asked for is forgotten.
    Compacted,
    /// The store knows less than it did, in these words.
    WentBack(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(words) | Self::Refused(words) | Self::Full(words) | Self::WentBack(words) => {
                f.write_str(words)
            }
            Self::Compacted => f.write_str("etcd has compacted the revision"),
        }
    }
}

impl Failure {
    /// The failure, with the member that did not answer.
    fn at(self, endpoint: &str) -> Self {
        match self {
            Self::Away(words) => Self::Away(format!("etcd at {endpoint}: {words}")),
            other => other,
        }
    }

    /// What an error of the client means.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        use tonic::Code;
        let words = chain(error);
        let status = match error {
            etcd_client::Error::LeaseKeepAliveError(words) if words.contains("lease not found") => {
                return Self::Refused("the lease has expired".to_owned());
            }
            etcd_client::Error::GRpcStatus(status) => status,
            _ => return Self::Away(words),
        };
        let message = status.message();
        match status.code() {
            Code::OutOfRange if message.contains("compacted") => Self::Compacted,
            Code::ResourceExhausted if message.contains("space exceeded") => Self::Full(format!(
                "etcd has no space left ({message}): compact and defragment it, then disarm its alarm \
                 (etcdctl alarm disarm)"
            )),
            Code::ResourceExhausted if message.starts_with("etcdserver: too many requests") => {
                Self::Full(format!("etcd has too much to do: {message}"))
            }
            Code::PermissionDenied => Self::Refused(format!(
                "etcd refuses ({message}): its user needs the role that apps/fleet/src/store/README.md shows"
            )),
            Code::InvalidArgument if message.contains("too many operations") => Self::Refused(format!(
                "etcd refuses ({message}): start it with a greater --max-txn-ops, for instance 1024"
            )),
            Code::InvalidArgument if message.contains("authentication failed") => {
                Self::Refused(format!("etcd refuses the user or the password ({message})"))
            }
            Code::NotFound if message.contains("lease not found") => {
                Self::Refused("the lease has expired".to_owned())
            }
            Code::InvalidArgument => Self::Refused(format!("etcd refuses ({message})")),
            _ => Self::Away(words),
        }
    }
}

/// An error with its causes, which the client's own words lack.
fn chain(error: &etcd_client::Error) -> String {
    let (mut words, mut cause) = match error {
        etcd_client::Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        etcd_client::Error::TransportError(error) => (error.to_string(), error.source()),
        error => (error.to_string(), error.source()),
    };
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// What was known of the store when a call was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    cluster: Option<u64>,
    revision: i64,
}

/// A client of one member. Each member that is tried has another number.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    endpoint: Arc<str>,
    number: u64,
}

#[derive(Default)]
struct Current {
    link: Option<Link>,
    number: u64,
    member: usize,
    /// The attempts since a member has answered.
    failed: u32,
    /// When the next attempt is due.
    due: Option<Instant>,
}

/// The link that is used now, and the store's identity and revision as far as they are known.
pub(super) struct Links {
    settings: Settings,
    current: Brief<Current>,
    /// Held by the one call that makes a link.
    making: Mutex<()>,
    known: Brief<Known>,
}

/// Locks a mutex that is only ever held for a few instructions.
fn brief<T>(mutex: &Brief<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    pub(super) fn new(settings: Settings) -> Self {
        let (current, making, known) = Default::default();
        Self { settings, current, making, known }
    }

    /// The latest knowledge of the store. An answer that is linearizable must not know less.
    pub(super) fn known(&self) -> Known {
        *brief(&self.known)
    }

    /// Checks that an answer to a call that was sent when `floor` was known is of the same store,
    /// at the same revision or later. Returns the answer's revision.
    pub(super) fn check(&self, floor: Known, header: Option<&ResponseHeader>) -> Result<u64, Failure> {
        let Some(header) = header else {
            return Err(Failure::Away("etcd has answered without a header".to_owned()));
        };
        let (cluster, revision) = (header.cluster_id(), header.revision());
        let mut known = brief(&self.known);
        let went_back = if floor.cluster.is_some_and(|before| before != cluster) {
            Some(format!("its cluster identifier is {cluster:x}, and was {:x}", floor.cluster.unwrap_or(0)))
        } else if revision < floor.revision {
            Some(format!("it is at revision {revision}, and was at {}", floor.revision))
        } else {
            None
        };
        if let Some(how) = went_back {
            *known = Known { cluster: Some(cluster), revision };
            return Err(Failure::WentBack(format!(
                "etcd is not what it was: {how}. It was restored from a backup, or replaced. Look at `farlane \
                 fleet status`; if volumes wait for recovery, run `farlane fleet recover`"
            )));
        }
        if known.cluster.is_none_or(|known| known == cluster) {
            *known = Known { cluster: Some(cluster), revision: known.revision.max(revision) };
        }
        u64::try_from(revision)
            .map_err(|_| Failure::Away(format!("etcd has answered with revision {revision}")))
    }

    /// The link, which is made if there is none.
    pub(super) async fn get(&self) -> Result<Link, Failure> {
        if let Some(link) = self.now() {
            return Ok(link);
        }
        let _making = self.making.lock().await;
        if let Some(link) = self.now() {
            return Ok(link);
        }
        let due = brief(&self.current).due;
        if let Some(due) = due {
            sleep_until(due).await;
        }
        // The attempt counts as failed at first: the caller may run out of time before it ends.
        let member = self.fail(&mut brief(&self.current));
        let endpoint = &self.settings.endpoints[member];
        match timeout(CONNECT, self.connect(endpoint)).await.unwrap_or_else(|_| Err(silent(CONNECT))) {
            Ok(client) => {
                let mut current = brief(&self.current);
                (current.member, current.number) = (member, current.number + 1);
                let link = Link { client, endpoint: endpoint.as_str().into(), number: current.number };
                current.link = Some(link.clone());
                Ok(link)
            }
            Err(failure) => Err(failure.at(endpoint)),
        }
    }

    fn now(&self) -> Option<Link> {
        brief(&self.current).link.clone()
    }

    /// Notes a failed attempt: the next member is due, after a pause once all have failed. Returns
    /// the member that has failed.
    fn fail(&self, current: &mut Current) -> usize {
        let members = self.settings.endpoints.len();
        let member = current.member % members;
        current.member = (member + 1) % members;
        current.failed = current.failed.saturating_add(1);
        let rounds = current.failed / u32::try_from(members).unwrap_or(u32::MAX);
        current.due = (rounds > 0).then(|| Instant::now() + jitter(pause(rounds)));
        member
    }

    /// Whether a link is the one that is used now.
    pub(super) fn is_current(&self, link: &Link) -> bool {
        self.now().is_some_and(|now| now.number == link.number)
    }

    /// Notes that a member has answered.
    fn answered(&self) {
        let mut current = brief(&self.current);
        (current.failed, current.due) = (0, None);
    }

    /// Leaves a link that has failed, for the next member.
    pub(super) fn leave(&self, link: &Link) {
        let mut current = brief(&self.current);
        if current.link.as_ref().is_some_and(|now| now.number == link.number) {
            current.link = None;
            self.fail(&mut current);
        }
    }

    /// Calls a member within a time, and leaves it if it does not answer.
    pub(super) async fn call<T, F>(
        &self,
        within: Duration,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let until = Instant::now() + within;
        let link = timeout_at(until, self.get()).await.unwrap_or_else(|_| Err(silent(within)))?;
        let answer = timeout_at(until, call(link.client.clone())).await;
        let failure = match answer {
            Ok(Ok(answer)) => {
                self.answered();
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => silent(within),
        };
        match &failure {
            Failure::Away(_) => self.leave(&link),
            _ => self.answered(),
        }
        Err(failure.at(&link.endpoint))
    }

    async fn connect(&self, endpoint: &str) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(PROBE, CALL)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = &self.settings.user {
            options = options.with_user(&user.name, &user.password);
        }
        let mut scheme = "http";
        if let Some(tls) = &self.settings.tls {
            // Read each time: certificates are replaced while controllers run.
            options = options.with_tls(read_tls(tls).map_err(|error| Failure::Refused(error.to_string()))?);
            scheme = "https";
        }
        let url = format!("{scheme}://{endpoint}");
        Client::connect([url], Some(options)).await.map_err(|error| Failure::of(&error))
    }
}

fn silent(within: Duration) -> Failure {
    Failure::Away(format!("no answer within {} s", within.as_secs_f32()))
}

/// The certificates that connections are made with.
pub(super) fn read_tls(tls: &Tls) -> Result<TlsOptions, StoreError> {
    let read = |path: &std::path::Path, word: &str| {
        let shown = |reason: String| StoreError::Settings(format!("{}: {reason}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| shown(error.to_string()))?;
        let begin = format!("-----BEGIN {word}");
        let is_pem = bytes.split(|byte| *byte == b'\n').any(|line| {
            let line = String::from_utf8_lossy(line);
            line.starts_with("-----BEGIN ") && line.contains(word)
        });
        is_pem
            .then_some(bytes)
            .ok_or_else(|| shown(format!("expected a PEM file with a line \"{begin}...\"")))
    };
    let ca = Certificate::from_pem(read(&tls.ca, "CERTIFICATE")?);
    let identity = Identity::from_pem(read(&tls.certificate, "CERTIFICATE")?, read(&tls.key, "PRIVATE KEY")?);
    Ok(TlsOptions::new().ca_certificate(ca).identity(identity))
}

/// The pause before a round of attempts over all members.
pub(super) fn pause(rounds: u32) -> Duration {
    let [first, longest] = PAUSES;
    first.saturating_mul(1 << rounds.min(10)).min(longest)
}

/// A duration between a half and three halves of another, so that controllers do not act at once.
pub(super) fn jitter(duration: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1024;
    duration / 2 + duration * u32::try_from(random).unwrap_or(0) / 1024
}
