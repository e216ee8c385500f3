//! The server of the page: HTTP/1.1, with limits, for browsers that know the token.

use std::borrow::Cow;
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::api::Api;
use super::api::query::Refusal;
use super::assets;
use super::guard::{Token, knows};
use crate::commands::json_line;
use daemon::http::{self, Answer, BodyFault, Limits, Request};

/// The most connections at once. Further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// The most questions that are answered at once.
const QUESTIONS_MAX: usize = 8;
/// The most bytes of the head of a request.
const HEAD_MAX: usize = 16 << 10;
/// The most bytes of a body.
const BODY_MAX: usize = 64 << 10;
/// How much of a request is taken, and how long it and its answer may take.
const LIMITS: Limits = Limits {
    head: HEAD_MAX,
    body: BODY_MAX,
    patience: Duration::from_secs(10),
    reading: Duration::from_secs(60),
};
/// Where questions go.
const API: &str = "api/";

/// The headers of every answer: the page may load its own files and nothing else, no other page may
/// show it in a frame, and no address with its token goes to others.
const HEADERS: [(&str, &str); 6] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

/// Room for a limited number at once.
struct Room {
    free: Mutex<usize>,
    left: Condvar,
}

/// A place in a room, until it is dropped.
struct Place<'a>(&'a Room);

impl Room {
    const fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), left: Condvar::new() }
    }

    /// Waits for a place.
    fn enter(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.left.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.left.notify_one();
    }
}

static CONNECTIONS: Room = Room::new(CONNECTIONS_MAX);
static QUESTIONS: Room = Room::new(QUESTIONS_MAX);

/// Answers requests at `listener`, as long as the process runs.
pub(super) fn serve(listener: &TcpListener, token: Token, api: Api) -> ! {
    let both = Arc::new((token, api));
    loop {
        let place = CONNECTIONS.enter();
        let started = listener.accept().and_then(|(stream, _)| {
            let both = both.clone();
            std::thread::Builder::new().name("page".into()).spawn(move || {
                let _place = place;
                converse(&stream, &both.0, &both.1);
            })
        });
        if started.is_err() {
            // There are too many descriptors or threads; that passes.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn converse(stream: &TcpStream, token: &Token, api: &Api) {
    // A client that goes away early gets nothing.
    let _ = http::answer(stream, &LIMITS, |request| {
        let answer = match request {
            Some(request) => match admitted(request, token) {
                Ok(path) => shown(request, &path, api),
                Err((status, words)) => text(status, words),
            },
            None => text(400, "this is no HTTP/1.1\n"),
        };
        Answer { headers: &HEADERS, ..answer }
    });
}

/// The requested path, if the request is admitted.
fn admitted(request: &Request<'_>, token: &Token) -> Result<String, (u16, &'static str)> {
    if !knows(request.host.as_deref()) {
        return Err((421, "ask by an address or as localhost\n"));
    }
    let path = token.admits(&request.path);
    let path = path.ok_or((403, "the address that farlane observe ui has printed has a secret\n"))?;
    match request.method.as_str() {
        "GET" | "HEAD" => Ok(path.to_owned()),
        "POST" if path.starts_with(API) => Ok(path.to_owned()),
        _ => Err((405, "GET shows, and POST plays scenarios\n")),
    }
}

fn shown(request: &mut Request<'_>, path: &str, api: &Api) -> Answer {
    let Some(question) = path.strip_prefix(API) else {
        return match assets::find(path) {
            Some(asset) => response(200, asset.kind, asset.bytes),
            None => refused(&Refusal::nothing("such page")),
        };
    };
    let body = match request.method == "POST" {
        true => match request.body() {
            Ok(body) => Some(body),
            Err(fault) => return refused(&Refusal::malformed(words(fault))),
        },
        false => None,
    };
    let _place = QUESTIONS.enter();
    match catch_unwind(AssertUnwindSafe(|| api.answer(question, &request.query, body.as_deref()))) {
        Ok(Ok(value)) => as_json(200, &value),
        Ok(Err(refusal)) => refused(&refusal),
        // The panic message names the fault.
        Err(_) => refused(&Refusal::fault()),
    }
}

const fn words(fault: BodyFault) -> &'static str {
    match fault {
        BodyFault::NoLength => "the request has no length: expected Content-Length: BYTES",
        BodyFault::TooLong => "the body has more than 64 KiB",
        BodyFault::Late => "the body did not come within 10 s",
    }
}

fn refused(refusal: &Refusal) -> Answer {
    as_json(refusal.status, &refusal.answer())
}

fn as_json(status: u16, value: &impl Serialize) -> Answer {
    response(status, "application/json", json_line(value).unwrap_or_default().into_bytes())
}

fn text(status: u16, words: &'static str) -> Answer {
    response(status, "text/plain; charset=utf-8", words.as_bytes())
}

fn response(status: u16, kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Answer {
    Answer { status, kind, headers: &[], body: body.into() }
}
