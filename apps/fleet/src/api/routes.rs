//! The routes of the REST interface.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fleet::Name;
use fleet::controller::{Call, Expect, Phase, Reply, Wait};
use fleet::object::{Key, Kind, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::{
    Enrolment, Explanation, Failure, FailureCode, Health, Item, Items, OrphanItem, Orphans, Ranked,
    Recovered, Space, Spaces, Status, Unfit, WaitFor, description, kind_of, watch,
};
use crate::controller::{Principal, Shared, State as HubState};
use crate::wire::{self, Wire};

/// The longest body of a request.
const BODY_MAX: usize = 1 << 20;
/// How long a call takes at most unless its user says otherwise, and at the very most.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// What a connection's requests share.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) principal: Principal,
}

/// The routes, for a connection of one user.
pub fn router(shared: Arc<Shared>, principal: Principal) -> Router {
    Router::new()
        .route("/v1/openapi.json", get(|| async { Json(description::openapi()) }))
        .route("/v1/health", get(health))
        .route("/v1/join", post(join))
        .route("/v1/recover", post(recover))
        .route("/v1/orphans", get(orphans))
        .route("/v1/explain/{name}", get(explain))
        .route("/v1/space", get(space))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/{kind}", get(list))
        .route("/v1/{kind}/{name}", get(find).put(put).delete(delete))
        .fallback(|| async { failure(FailureCode::NotFound, "there is no such path: see /v1/openapi.json") })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(Connection { shared, principal })
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        if self.code == FailureCode::NotLeader {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn failure(code: FailureCode, message: &str) -> Failure {
    Failure::new(code, message)
}

impl From<wire::Invalid> for Failure {
    fn from(error: wire::Invalid) -> Self {
        Self::new(FailureCode::Invalid, error.to_string())
    }
}

impl From<JsonRejection> for Failure {
    fn from(error: JsonRejection) -> Self {
        Self::new(FailureCode::Invalid, error.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(error: QueryRejection) -> Self {
        Self::new(FailureCode::Invalid, error.body_text())
    }
}

/// Options of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What to wait for before the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitFor>,
    /// Seconds until the reply; 30 by default, 3600 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Change the object only if it is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub present: bool,
}

impl Options {
    fn wait(&self) -> Option<Wait> {
        self.wait.map(|wait| match wait {
            WaitFor::Attached => Wait::Attached,
            WaitFor::Gone => Wait::Gone,
            WaitFor::Ready => Wait::Ready,
        })
    }

    fn until(&self) -> Instant {
        Instant::now() + self.timeout.map_or(TIMEOUT, Duration::from_secs).min(TIMEOUT_MAX)
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// The kind that a path's word names.
fn kind_in(path: &str) -> Result<Kind> {
    let words: Vec<_> = super::KINDS.iter().map(|kind| kind.word()).collect();
    kind_of(path).ok_or_else(|| {
        let sentence =
            format!("\"{}\" is no kind of object: expected {}", path.escape_debug(), words.join(", "));
        Failure::new(FailureCode::NotFound, sentence)
    })
}

fn key_in(kind: &str, name: &str) -> Result<Key> {
    Ok(Key { kind: kind_in(kind)?, name: wire::Name(name.to_owned()).pure()? })
}

async fn health(State(at): State<Connection>) -> Result<Json<Health>> {
    at.principal.may_see()?;
    let controllers = at.shared.controllers.to_string();
    let health = at.shared.hub.look(|state| Health {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        controllers,
        leads: state.controller.is_ready(),
        store: state.store.map(str::to_owned),
        connected: state.connected.iter().map(wire::Name::wire).collect(),
        needs_recovery: state.controller.is_behind_any(),
    });
    Ok(Json(health.await?))
}

async fn list(State(at): State<Connection>, Path(kind): Path<String>) -> Result<Json<Items>> {
    at.principal.may_see()?;
    let reply = at.shared.hub.call(Call::List(kind_in(&kind)?), Options::default().until()).await?;
    Ok(Json(Items { items: items(&at, reply).await? }))
}

async fn find(State(at): State<Connection>, Path((kind, name)): Path<(String, String)>) -> Result<Response> {
    at.principal.may_see()?;
    let reply = at.shared.hub.call(Call::Get(key_in(&kind, &name)?), Options::default().until()).await?;
    one(&at, reply).await
}

async fn put(
    State(at): State<Connection>,
    Path((kind, name)): Path<(String, String)>,
    options: Result<Query<Options>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Json<wire::Object>, JsonRejection>,
) -> Result<Response> {
    let (Query(options), Json(wire)) = (options?, body?);
    let key = key_in(&kind, &name)?;
    at.principal.may_change(key.kind)?;
    let details = serde_json::to_string(&wire).unwrap_or_default();
    let expect = expected(&headers, &options)?;
    let call = Call::Put { key, object: wire.pure()?, expect, wait: options.wait() };
    let replied = at.shared.hub.call(call, options.until()).await;
    at.shared.audit.note(
        &at.principal,
        "put",
        &format!("{kind} {name}"),
        &details,
        replied.as_ref().map(|_| ()),
    );
    one(&at, replied?).await
}

/// What must be there, as If-Match or the options say.
fn expected(headers: &HeaderMap, options: &Options) -> Result<Expect> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(if options.present { Expect::Present } else { Expect::Any });
    };
    let revision = value.to_str().ok().and_then(|text| text.trim_matches('"').parse().ok());
    let wrong =
        || failure(FailureCode::Invalid, "If-Match is no revision: expected \"NUMBER\" of the object");
    revision.map(Expect::Revision).ok_or_else(wrong)
}

async fn delete(
    State(at): State<Connection>,
    Path((kind, name)): Path<(String, String)>,
    options: Result<Query<Options>, QueryRejection>,
) -> Result<Response> {
    let Query(options) = options?;
    let key = key_in(&kind, &name)?;
    at.principal.may_change(key.kind)?;
    let replied = at.shared.hub.call(Call::Delete { key, wait: options.wait() }, options.until()).await;
    at.shared.audit.note(
        &at.principal,
        "delete",
        &format!("{kind} {name}"),
        "",
        replied.as_ref().map(|_| ()),
    );
    one(&at, replied?).await
}

async fn recover(State(at): State<Connection>) -> Result<Json<Recovered>> {
    at.principal.may_administer()?;
    let replied = at.shared.hub.call(Call::Recover, Options::default().until()).await;
    at.shared.audit.note(&at.principal, "recover", "fleet", "", replied.as_ref().map(|_| ()));
    match replied? {
        Reply::Incarnation(incarnation) => Ok(Json(Recovered { incarnation })),
        _ => Err(failure(FailureCode::NotLeader, "the controller has not recovered the store: ask again")),
    }
}

async fn orphans(State(at): State<Connection>) -> Result<Json<Orphans>> {
    at.principal.may_see()?;
    let found = at.shared.hub.look(|state| state.controller.orphans()).await?;
    Ok(Json(Orphans { orphans: found.iter().map(OrphanItem::of).collect() }))
}

async fn explain(State(at): State<Connection>, Path(name): Path<String>) -> Result<Json<Explanation>> {
    at.principal.may_see()?;
    let key = key_in(Kind::Volume.word(), &name)?;
    let missing = Failure::new(FailureCode::NotFound, format!("there is no volume called {name}"));
    let found = at.shared.hub.look(move |state| explanation(state, &key.name)).await?;
    found.map(Json).ok_or(missing)
}

fn explanation(state: &HubState<'_>, name: &Name) -> Option<Explanation> {
    let volume = state.controller.volume(name)?;
    let ranking = state.controller.rank(volume);
    let fit = ranking.fit.iter().map(|one| Ranked {
        pool: wire::Name::wire(&one.pool),
        p99_ns: one.prediction.as_ref().map(|prediction| prediction.p99.get()),
        bandwidth: one.prediction.as_ref().map(|prediction| prediction.bandwidth),
        path: one.prediction.as_ref().map(|prediction| prediction.path.clone()).unwrap_or_default(),
    });
    let unfit =
        ranking.unfit.iter().map(|(pool, why)| Unfit { pool: wire::Name::wire(pool), why: why.to_string() });
    Some(Explanation {
        volume: wire::Name::wire(name),
        class: volume.class.as_ref().map(wire::Name::wire),
        pool: volume.pool.as_ref().map(wire::Name::wire),
        fit: fit.collect(),
        unfit: unfit.collect(),
    })
}

/// For what space is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// The class that volumes are to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<wire::Name>,
    /// The host that they are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<wire::Name>,
}

async fn space(
    State(at): State<Connection>,
    demand: Result<Query<Demand>, QueryRejection>,
) -> Result<Json<Spaces>> {
    at.principal.may_see()?;
    let Query(Demand { class, near }) = demand?;
    let (class, near) = (class.pure()?, near.pure()?);
    if let Some(name) = class.clone() {
        // There must be such a class.
        let key = Key { kind: Kind::Class, name };
        at.shared.hub.call(Call::Get(key), Options::default().until()).await?;
    }
    let volume = fleet::object::Volume {
        bytes: 1,
        class,
        near,
        pool: None,
        delete: false,
        epoch: fleet::Epoch::default(),
        admitted: Vec::new(),
        source: None,
        copied: false,
    };
    let found = at.shared.hub.look(move |state| {
        let ranking = state.controller.rank(&volume);
        let fit = ranking.fit.into_iter().filter_map(|one| {
            let free_bytes = state.controller.free_bytes(&one.pool)?;
            Some(Space { pool: wire::Name::wire(&one.pool), free_bytes })
        });
        let unfit = ranking.unfit.iter();
        let unfit = unfit.map(|(pool, why)| Unfit { pool: wire::Name::wire(pool), why: why.to_string() });
        Spaces { fit: fit.collect(), unfit: unfit.collect() }
    });
    Ok(Json(found.await?))
}

/// Enrols a machine that has a token. Its key is the one that its connection has proved.
async fn join(
    State(at): State<Connection>,
    body: Result<Json<Enrolment>, JsonRejection>,
) -> Result<Response> {
    let Json(enrolment) = body?;
    let name = enrolment.name.0.clone();
    let replied = enrol(&at, enrolment).await;
    at.shared.audit.note(&at.principal, "join", &format!("node {name}"), "", replied.as_ref().map(|_| ()));
    one(&at, replied?).await
}

async fn enrol(at: &Connection, enrolment: Enrolment) -> Result<Reply> {
    let refused = || {
        failure(
            FailureCode::Forbidden,
            "no such token, or it was used, or its time is over: farlane fleet token NODE makes one",
        )
    };
    let Some(identity) = at.principal.key else {
        return Err(failure(
            FailureCode::Forbidden,
            "a machine joins over the network, where it proves its key",
        ));
    };
    let until = Options::default().until();
    let name = enrolment.name.clone().pure()?;
    let key = Key { kind: Kind::Token, name: name.clone() };
    let found = match at.shared.hub.call(Call::Get(key.clone()), until).await {
        Ok(Reply::Objects(found)) => found,
        Ok(_) => return Err(refused()),
        Err(error) if error.code == FailureCode::NotFound => return Err(refused()),
        Err(error) => return Err(error),
    };
    let Some((_, revision, Object::Token(token))) = found.into_iter().next() else { return Err(refused()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |time| time.as_secs());
    let is_same: bool = Sha256::digest(enrolment.secret.0).as_slice().ct_eq(&token.secret).into();
    let is_free = token.used_by.is_none_or(|used_by| used_by == identity.0);
    if !is_same || !is_free || token.expires <= now {
        return Err(refused());
    }
    let wanted = name.clone();
    if at
        .shared
        .hub
        .look(move |state| {
            state.connected.contains(&wanted) && state.controller.node_with(&identity.0) != Some(&wanted)
        })
        .await?
    {
        let sentence =
            format!("{name} is connected, with another key: choose another name, or stop its agent");
        return Err(Failure::new(FailureCode::InUse, sentence));
    }
    // The token is used up first: of two machines that use it at once, one fails.
    let used = fleet::object::Token { used_by: Some(identity.0), ..token };
    let expect = Expect::Revision(revision);
    at.shared.hub.call(Call::Put { key, object: Object::Token(used), expect, wait: None }, until).await?;
    let node = fleet::object::Node {
        identity: identity.0,
        host_nqn: crate::naming::host_nqn(&name),
        host_identifier: crate::naming::host_identifier(&name),
        addresses: enrolment.addresses,
        labels: enrolment.labels,
        cordon: None,
    };
    let key = Key { kind: Kind::Node, name };
    at.shared
        .hub
        .call(Call::Put { key, object: Object::Node(node), expect: Expect::Any, wait: None }, until)
        .await
}

/// The object of a reply, with its revision as ETag; no content if it is gone.
async fn one(at: &Connection, reply: Reply) -> Result<Response> {
    let Some(item) = items(at, reply).await?.into_iter().next() else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let tag = format!("\"{}\"", item.revision);
    Ok(([(header::ETAG, tag)], Json(item)).into_response())
}

async fn items(at: &Connection, reply: Reply) -> Result<Vec<Item>> {
    let Reply::Objects(objects) = reply else { return Ok(Vec::new()) };
    at.shared
        .hub
        .look(move |state| {
            let items = objects.iter().map(|(key, revision, object)| item(state, key, *revision, object));
            items.collect()
        })
        .await
}

/// An object with how far it is.
pub(super) fn item(state: &HubState<'_>, key: &Key, revision: u64, object: &Object) -> Item {
    let controller = state.controller;
    let status = match object {
        Object::Volume(_) => controller.volume_phase(&key.name).map(|phase| Status::of_volume(&phase)),
        Object::Snapshot(_) => controller.snapshot_phase(&key.name).map(|phase| Status::of_snapshot(&phase)),
        Object::Attachment(_) => controller.phase(&key.name).map(|phase| {
            let status = Status::of_attachment(&phase, controller.is_reached(&key.name));
            Status { nqn: nqn_of(state, &key.name, &phase), ..status }
        }),
        Object::Node(_) if controller.is_connected(&key.name) => {
            Some(Status::new("connected", "the agent is connected"))
        }
        Object::Node(_) => {
            Some(Status::new("away", "the agent is not connected: farlane fleet agent starts it"))
        }
        Object::Pool(_) => {
            let free = controller.free_bytes(&key.name);
            Some(Status { free_bytes: free, ..Status::new("ready", "") })
        }
        _ => None,
    };
    Item { name: wire::Name::wire(&key.name), revision, object: wire::Object::wire(object), status }
}

/// The subsystem of an attachment, as the volume's owner says.
fn nqn_of(state: &HubState<'_>, name: &Name, phase: &Phase) -> Option<String> {
    let Phase::Attached(epoch) = phase else { return None };
    let mut all = state.credentials.values().flatten();
    let found = all.find(|one| one.attachment.0 == name.as_str() && one.epoch.0 == *epoch);
    found.map(|one| one.nqn.clone())
}

/// A body of lines.
pub(super) fn lines(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}
