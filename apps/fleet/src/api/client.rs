//! The client of the REST interface.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use live::carrier::identity::Identity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::routes::{Demand, Options};
use super::{
    Change, Enrolment, Explanation, Failure, FailureCode, Health, Item, Items, Orphans, Recovered, Spaces,
};
use crate::channel::{self, Controllers, ControllersError, Protocol};
use crate::wire::Object;

/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;
/// How long a client looks for the controller that leads.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two rounds over all controllers.
const PAUSE: Duration = Duration::from_millis(250);

/// Where a client finds the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The control socket of a controller on this machine.
    Socket(PathBuf),
    /// Controllers of the network.
    Network(Controllers),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Network(controllers) => controllers.fmt(f),
        }
    }
}

impl FromStr for Place {
    type Err = ControllersError;
    fn from_str(text: &str) -> Result<Self, ControllersError> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Self::Socket(path.into())),
            None => text.parse().map(Self::Network),
        }
    }
}

/// A client of the controllers of a fleet.
#[derive(Clone)]
pub struct Client {
    place: Place,
    identity: Option<Arc<Identity>>,
    patience: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.place).finish_non_exhaustive()
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

impl Client {
    /// A client that proves `identity` to controllers of the network.
    pub const fn new(place: Place, identity: Option<Arc<Identity>>) -> Self {
        Self { place, identity, patience: PATIENCE }
    }

    /// The client, which looks for the controller that leads at most for this time.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The object of a kind with a name.
    ///
    /// # Errors
    /// When there is none, or no controller answers.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Item> {
        let found = self.ask(Method::GET, &format!("/v1/{kind}/{name}"), None::<&()>, None).await?;
        found.ok_or_else(|| Failure::new(FailureCode::NotFound, format!("there is no {kind} called {name}")))
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn list(&self, kind: &str) -> Result<Vec<Item>> {
        let items: Option<Items> = self.ask(Method::GET, &format!("/v1/{kind}"), None::<&()>, None).await?;
        Ok(items.unwrap_or_default().items)
    }

    /// Creates or changes an object; only the object of this revision, if one is given. `None` if
    /// the object was waited for until it was gone.
    ///
    /// # Errors
    /// When the object cannot be so, or no controller answers.
    pub async fn put(
        &self,
        name: &str,
        object: &Object,
        options: &Options,
        revision: Option<u64>,
    ) -> Result<Option<Item>> {
        let path = format!("/v1/{}/{name}{}", object.word(), query(options));
        self.ask(Method::PUT, &path, Some(object), revision).await
    }

    /// Marks an object as not wanted any longer, or deletes it. `None` if it is gone.
    ///
    /// # Errors
    /// When something else must be changed first, or no controller answers.
    pub async fn delete(&self, kind: &str, name: &str, options: &Options) -> Result<Option<Item>> {
        self.ask(Method::DELETE, &format!("/v1/{kind}/{name}{}", query(options)), None::<&()>, None).await
    }

    /// The state of a controller, which need not lead.
    ///
    /// # Errors
    /// When none answers.
    pub async fn health(&self) -> Result<Health> {
        self.demand(Method::GET, "/v1/health", None::<&()>).await
    }

    /// Enrols this machine, by the key that the client proves.
    ///
    /// # Errors
    /// When the token is none, or no controller answers.
    pub async fn join(&self, enrolment: &Enrolment) -> Result<Item> {
        self.demand(Method::POST, "/v1/join", Some(enrolment)).await
    }

    /// Takes what the owners of volumes know for the truth.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn recover(&self) -> Result<Recovered> {
        self.demand(Method::POST, "/v1/recover", None::<&()>).await
    }

    /// What machines have and the store does not know.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn orphans(&self) -> Result<Orphans> {
        self.demand(Method::GET, "/v1/orphans", None::<&()>).await
    }

    /// Why a volume is where it is.
    ///
    /// # Errors
    /// When there is no such volume, or no controller answers.
    pub async fn explain(&self, volume: &str) -> Result<Explanation> {
        self.demand(Method::GET, &format!("/v1/explain/{volume}"), None::<&()>).await
    }

    /// The pools that are fit for a volume of a class, for a host.
    ///
    /// # Errors
    /// When there is no such class, or no controller answers.
    pub async fn space(&self, demand: &Demand) -> Result<Spaces> {
        let words = [("class", &demand.class), ("near", &demand.near)];
        let words = words.iter().filter_map(|(key, name)| Some(format!("{key}={}", name.as_ref()?.0)));
        let words: Vec<_> = words.collect();
        let query = if words.is_empty() { String::new() } else { format!("?{}", words.join("&")) };
        self.demand(Method::GET, &format!("/v1/space{query}"), None::<&()>).await
    }

    /// Hands all objects, then each change, to `on_change`, until it returns false or the
    /// connection ends.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn watch(&self, mut on_change: impl FnMut(Change) -> bool) -> Result<()> {
        let mut response = self.find_leader(Method::GET, "/v1/watch", &Bytes::new(), None).await?;
        let mut buffer = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| unreachable(&self.place, &error))?;
            buffer.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let change = serde_json::from_slice(&buffer[..end])
                    .map_err(|error| unreachable(&self.place, &error))?;
                buffer.drain(..=end);
                if !on_change(change) {
                    return Ok(());
                }
            }
            if buffer.len() > ANSWER_MAX {
                return Err(Failure::new(
                    FailureCode::Unreachable,
                    "the controller sent a line without an end",
                ));
            }
        }
        Err(Failure::new(FailureCode::NotLeader, "the controller has ended the watch: ask again"))
    }

    async fn demand<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let answer = self.ask(method, path, body, None).await?;
        answer.ok_or_else(|| Failure::new(FailureCode::Unreachable, "the controller's answer is empty"))
    }

    /// Asks the controller that leads, and returns its answer; `None` without content.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        revision: Option<u64>,
    ) -> Result<Option<T>> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = Bytes::from(body.map_err(|error| unreachable(&self.place, &error))?.unwrap_or_default());
        let response = self.find_leader(method, path, &body, revision).await?;
        let status = response.status();
        let answer = read(response).await?;
        if status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(failure_of(status, &answer));
        }
        serde_json::from_slice(&answer).map(Some).map_err(|error| unreachable(&self.place, &error))
    }

    /// The response of the first controller that does not say that another one leads.
    async fn find_leader(
        &self,
        method: Method,
        path: &str,
        body: &Bytes,
        revision: Option<u64>,
    ) -> Result<Response<Incoming>> {
        let until = Instant::now() + self.patience;
        loop {
            let mut last = None;
            for index in 0..self.count() {
                match self.ask_one(index, &method, path, body.clone(), revision).await {
                    Ok(response) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                        last = Some(failure_of(response.status(), &read(response).await?));
                    }
                    Ok(response) => return Ok(response),
                    Err(failure) => last = Some(failure),
                }
            }
            let is_refused = |failure: &Failure| matches!(failure.code, FailureCode::Forbidden);
            // A socket that is not there has no controller that is about to start again.
            let is_absent = matches!(&self.place, Place::Socket(path) if !path.exists());
            if Instant::now() >= until || is_absent || last.as_ref().is_some_and(is_refused) {
                return Err(
                    last.unwrap_or_else(|| Failure::new(FailureCode::Unreachable, "no controller is named"))
                );
            }
            sleep(PAUSE).await;
        }
    }

    fn count(&self) -> usize {
        match &self.place {
            Place::Socket(_) => 1,
            Place::Network(controllers) => controllers.addresses.len(),
        }
    }

    async fn ask_one(
        &self,
        index: usize,
        method: &Method,
        path: &str,
        body: Bytes,
        revision: Option<u64>,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "farlane");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(revision) = revision {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        let request = request.body(Full::new(body)).map_err(|error| unreachable(&self.place, &error))?;
        match &self.place {
            Place::Socket(path) => {
                let stream =
                    UnixStream::connect(path).await.map_err(|error| unreachable(&self.place, &error))?;
                self.send(stream, request).await
            }
            Place::Network(controllers) => {
                let identity = self.identity.as_ref().ok_or_else(|| {
                    Failure::new(
                        FailureCode::Forbidden,
                        "a key is needed to reach controllers over the network: --key FILE",
                    )
                })?;
                let address = &controllers.addresses[index];
                let stream = channel::connect(identity, address, controllers.key, Protocol::Rest).await;
                let stream = stream.map_err(|error| {
                    Failure::new(
                        FailureCode::Unreachable,
                        format!("the controller at {address} does not answer: {error}"),
                    )
                })?;
                self.send(stream, request).await
            }
        }
    }

    async fn send<S>(&self, stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| unreachable(&self.place, &error))?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| unreachable(&self.place, &error))
    }
}

impl Object {
    /// The word for its kind.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Fleet(_) => "fleet",
            Self::Node(_) => "node",
            Self::Pool(_) => "pool",
            Self::Volume(_) => "volume",
            Self::Class(_) => "class",
            Self::Link(_) => "link",
            Self::Attachment(_) => "attachment",
            Self::Token(_) => "token",
            Self::Snapshot(_) => "snapshot",
        }
    }
}

/// The options as the query of a path.
fn query(options: &Options) -> String {
    let mut words = Vec::new();
    if let Some(wait) = options.wait {
        words.push(format!("wait={}", format!("{wait:?}").to_ascii_lowercase()));
    }
    if let Some(timeout) = options.timeout {
        words.push(format!("timeout={timeout}"));
    }
    if options.present {
        words.push("present=true".to_owned());
    }
    if words.is_empty() { String::new() } else { format!("?{}", words.join("&")) }
}

async fn read(response: Response<Incoming>) -> Result<Bytes> {
    let collected = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let why = if error.is::<LengthLimitError>() { "is too long".to_owned() } else { error.to_string() };
        Failure::new(FailureCode::Unreachable, format!("the controller's answer: {why}"))
    })
}

fn failure_of(status: StatusCode, answer: &[u8]) -> Failure {
    serde_json::from_slice(answer).unwrap_or_else(|_| {
        Failure::new(FailureCode::Unreachable, format!("the controller answers {status}"))
    })
}

fn unreachable(place: &Place, error: &dyn std::error::Error) -> Failure {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    Failure::new(
        FailureCode::Unreachable,
        format!("no controller answers at {place}: {why}; farlane fleet controller starts one"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::WaitFor;
    use super::*;

    #[test]
    fn options_are_a_query() {
        assert_eq!(query(&Options::default()), "");
        let options = Options { wait: Some(WaitFor::Attached), timeout: Some(5), present: true };
        assert_eq!(query(&options), "?wait=attached&timeout=5&present=true");
    }

    #[test]
    fn places_are_sockets_or_controllers() {
        assert_eq!("unix:/run/x".parse::<Place>().unwrap().to_string(), "unix:/run/x");
        assert!("x".parse::<Place>().is_err());
    }
}
