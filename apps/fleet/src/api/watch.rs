//! `GET /v1/watch`: all objects, then each change, as lines of JSON.

use std::collections::VecDeque;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fleet::controller::{Call, Reply};
use fleet::object::Object;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::routes::{Connection, item, lines};
use super::{Change, Failure, KINDS};
use crate::controller::Feed;
use crate::wire::{Name, Wire};

/// How long a list may take.
const LIST_MAX: std::time::Duration = std::time::Duration::from_secs(30);

pub(super) async fn watch(State(at): State<Connection>) -> Result<Response, Failure> {
    at.principal.may_see()?;
    let feed = at.shared.hub.watch();
    let waiting = list(&at).await?;
    let stream = futures_util::stream::try_unfold((at, feed, waiting), |(at, mut feed, mut waiting)| async {
        loop {
            if let Some(change) = waiting.pop_front() {
                let mut line = serde_json::to_vec(&change).map_err(std::io::Error::from)?;
                line.push(b'\n');
                return Ok::<_, std::io::Error>(Some((line, (at, feed, waiting))));
            }
            match feed.recv().await {
                Ok(Feed::Changed(revision, key, object)) => {
                    let (kind, name) = (key.kind.word().to_owned(), Name::wire(&key.name));
                    let look = at
                        .shared
                        .hub
                        .look(move |state| object.map(|object: Object| item(state, &key, revision, &object)));
                    let item = look.await.map_err(std::io::Error::other)?;
                    waiting.push_back(Change { kind, name, revision, item });
                }
                Ok(Feed::Reset) | Err(RecvError::Lagged(_)) => match list(&at).await {
                    Ok(changes) => waiting = changes,
                    Err(_) => return Ok(None), // Another controller leads: its users ask again.
                },
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    });
    Ok(lines(Body::from_stream(stream)))
}

async fn list(at: &Connection) -> Result<VecDeque<Change>, Failure> {
    let mut changes = VecDeque::new();
    for kind in KINDS {
        let reply = at.shared.hub.call(Call::List(kind), Instant::now() + LIST_MAX).await?;
        let Reply::Objects(objects) = reply else { continue };
        let found = at.shared.hub.look(move |state| {
            let changes = objects.iter().map(|(key, revision, object)| Change {
                kind: key.kind.word().to_owned(),
                name: Name::wire(&key.name),
                revision: *revision,
                item: Some(item(state, key, *revision, object)),
            });
            changes.collect::<Vec<_>>()
        });
        changes.extend(found.await?);
    }
    Ok(changes)
}
