//! The server of the page: HTTP/1.1, with limits, for browsers that know the token.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::api::Api;
use super::api::query::Refusal;
use super::assets;
use super::guard::{Token, knows};
use crate::commands::json_line;

/// The most connections at once. Further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// The most threads that answer questions.
const THREADS_MAX: usize = 8;
/// How long the head of a request may take to come, and a body.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of the head of a request.
const HEAD_MAX: usize = 16 << 10;
/// The most bytes of a body.
const BODY_MAX: usize = 64 << 10;
/// Where questions go.
const API: &str = "api/";

/// What every answer says: the page may load what is its own and nothing else, nobody may show it
/// in a frame, and no address with its token goes to others.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

type Answer = Response<Full<Bytes>>;

/// Answers whoever asks at `listener`, as long as the process runs.
///
/// # Errors
/// The system's.
pub(super) fn serve(listener: TcpListener, token: Token, api: Api) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(THREADS_MAX)
        .build()?;
    let (token, api) = (Arc::new(token), Arc::new(api));
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return Ok(()) };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // There are too many descriptors; that passes.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (token, api) = (token.clone(), api.clone());
            tokio::spawn(async move {
                let answer = |request| answer(request, token.clone(), api.clone());
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .max_buf_size(HEAD_MAX)
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // Who goes away early gets nothing.
                let _ = connection.await;
                drop(permit);
            });
        }
    })
}

async fn answer(request: Request<Incoming>, token: Arc<Token>, api: Arc<Api>) -> Result<Answer, Infallible> {
    let is_head = request.method() == Method::HEAD;
    let mut answer = match admitted(&request, &token) {
        Ok(path) => shown(request, path, api).await,
        Err((status, words)) => response(status, "text/plain; charset=utf-8", words.into()),
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if is_head {
        *answer.body_mut() = Full::default();
    }
    Ok(answer)
}

/// What is asked for, if whoever asks may.
fn admitted(request: &Request<Incoming>, token: &Token) -> Result<String, (StatusCode, &'static str)> {
    if !knows(host(request.headers())) {
        return Err((StatusCode::MISDIRECTED_REQUEST, "ask by an address or as localhost\n"));
    }
    let path = token.admits(request.uri().path());
    let path =
        path.ok_or((StatusCode::FORBIDDEN, "the address that farlane ui has printed has a secret\n"))?;
    match *request.method() {
        Method::GET | Method::HEAD => Ok(path.to_owned()),
        Method::POST if path.starts_with(API) => Ok(path.to_owned()),
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "GET shows, and POST plays scenarios\n")),
    }
}

/// The only Host of a request.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::HOST).iter();
    let host = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(host)
}

async fn shown(request: Request<Incoming>, path: String, api: Arc<Api>) -> Answer {
    let Some(question) = path.strip_prefix(API).map(str::to_owned) else {
        return match assets::find(&path) {
            Some(asset) => response(StatusCode::OK, asset.kind, Bytes::from_static(asset.bytes)),
            None => refused(&Refusal::nothing("such page")),
        };
    };
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = match request.method() == Method::POST {
        true => match body(request).await {
            Ok(body) => Some(body),
            Err(refusal) => return refused(&refusal),
        },
        false => None,
    };
    let answered = tokio::task::spawn_blocking(move || api.answer(&question, &query, body.as_deref())).await;
    match answered {
        Ok(Ok(value)) => as_json(StatusCode::OK, &value),
        Ok(Err(refusal)) => refused(&refusal),
        // The panic has said what is wrong.
        Err(_) => refused(&Refusal::fault()),
    }
}

async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let collected = Limited::new(request.into_body(), BODY_MAX).collect();
    match tokio::time::timeout(PATIENCE, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(Refusal::malformed(error)),
        Err(_) => Err(Refusal::malformed("the body did not come within 10 s")),
    }
}

fn refused(refusal: &Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    as_json(status, &refusal.as_json())
}

fn as_json(status: StatusCode, value: &Value) -> Answer {
    let text = json_line(value).unwrap_or_default();
    response(status, "application/json", text.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
