//! The file of each volume, and the hosts that are let in.

use std::io;
use std::path::Path;

use fleet::Name;
use fleet::agent::Served;

use super::Worker;
use super::exports::Wanted;
use super::file::Offer;

impl Worker {
    /// The far end that a volume is to have, and a problem with a part of it.
    pub(super) fn tunnel(&mut self, served: &Served) -> (Option<Wanted>, Option<String>) {
        let made = self.folder_of(&served.pool).and_then(|folder| {
            let folder = folder.to_owned();
            self.volumes.prepare(&served.name, (&served.pool, &folder), served.bytes)
        });
        let (path, bytes) = match made {
            Ok(made) => made,
            // The host goes on with what the far end has open.
            Err(error) => return (self.exports.known(served), Some(error.to_string())),
        };
        let [first, others @ ..] = served.admitted.as_slice() else { return (None, None) };
        let problem = others.first().map(|other| {
            let (first, other) = (&first.attachment, &other.attachment);
            format!("attachment {other} can't be let in beside {first}: detach one of them")
        });
        let (pool, admitted) = (served.pool.clone(), first.clone());
        (Some(Wanted { pool, path, bytes, admitted }), problem)
    }

    /// The folder of a pool.
    fn folder_of(&self, pool: &Name) -> io::Result<&Path> {
        self.frame.pool(pool).ok_or_else(|| {
            let known: Vec<_> = self.frame.pools.iter().map(|(pool, _)| pool.to_string()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            io::Error::other(format!("this machine has no pool {pool}: the agent's pools are {known}"))
        })
    }

    /// The offer of a volume, if it has hosts, and a problem with a part of it.
    pub(super) fn offer(&mut self, served: &Served) -> io::Result<(Option<Offer>, Option<String>)> {
        let Served { name, pool, bytes, admitted } = served;
        if self.exports.has(name) && !admitted.is_empty() {
            return Err(io::Error::other("its far end of a tunnel has yet to end"));
        }
        let folder = self.folder_of(pool)?;
        let before = self.written.content.volumes.get(name);
        let (prepared, problem) = match (self.volumes.prepare(name, (pool, folder), *bytes), before) {
            (Ok(prepared), _) => (prepared, None),
            // The hosts go on with what the target has open.
            (Err(error), Some(offer)) if offer.pool == *pool && self.serving.contains(name) => {
                ((offer.path.clone(), offer.bytes), Some(error.to_string()))
            }
            (Err(error), _) => return Err(error),
        };
        let (path, bytes) = prepared;
        let Some((offer, others)) = Offer::of(name, (pool.clone(), path, bytes), admitted) else {
            return Ok((None, problem));
        };
        let in_vain = others.first().map(|other| {
            let first = &offer.admitted[0].attachment;
            format!("attachment {} can't be let in beside {first}: detach one of them", other.attachment)
        });
        Ok((Some(offer), problem.or(in_vain)))
    }
}
