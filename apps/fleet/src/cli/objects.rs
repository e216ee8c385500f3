//! Commands that ask a controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use live::carrier::identity::Identity;
use sha2::{Digest, Sha256};

use super::args::{
    Access, AttachArgs, ClassCommand, ClassCreate, Command, GetArgs, LinkCommand, LinkCreate, NodeCommand,
    PoolCommand, SnapshotCommand, SnapshotCreate, TokenArgs, VolumeCommand, VolumeCreate, VolumeResize,
    WatchArgs,
};
use super::{Error, print, serve};
use crate::api::client::{Client, Place};
use crate::api::routes::Options;
use crate::api::{Failure, FailureCode, Item, WaitFor};
use crate::wire::{
    Attachment, Class, Cordon, Data, Epoch, Hex, Link, Name, Nanoseconds, Node, Object, Pool, Snapshot,
    Token, Volume,
};

/// A client as the options say.
pub(super) fn client(access: &Access) -> Result<Client, Error> {
    let place = access.controllers.clone().unwrap_or_else(|| Place::Socket(serve::default_control()));
    let identity = match (&place, &access.key) {
        (Place::Socket(_), _) => None,
        (_, Some(path)) => Some(Identity::read(path)?),
        (_, None) => Some(Identity::read(&Identity::default_path())?),
    };
    Ok(Client::new(place, identity.map(Arc::new)).with_patience(access.timeout))
}

/// Runs a command that asks a controller.
pub(super) async fn run(command: Command, access: &Access, json: bool) -> Result<(), Error> {
    let client = client(access)?;
    let asker = Asker { client, timeout: access.timeout.as_secs().max(1), json };
    match command {
        Command::Token(args) => asker.token(&args).await,
        Command::Get(args) => asker.get(&args).await,
        Command::Watch(args) => asker.watch(&args).await,
        Command::Status => asker.status().await,
        Command::Orphans => asker.orphans().await,
        Command::Explain(args) => {
            let explanation = asker.client.explain(&args.name).await?;
            if json { print::json(&explanation) } else { print::explanation(&explanation) }
        }
        Command::Volume(VolumeCommand::Create(args)) => asker.create_volume(args).await,
        Command::Volume(VolumeCommand::Resize(args)) => asker.resize_volume(&args).await,
        Command::Volume(VolumeCommand::Delete(args)) => {
            asker.delete("volume", &args.name, !args.waiting.no_wait).await
        }
        Command::Snapshot(SnapshotCommand::Create(args)) => asker.create_snapshot(args).await,
        Command::Snapshot(SnapshotCommand::Delete(args)) => {
            asker.delete("snapshot", &args.name, !args.waiting.no_wait).await
        }
        Command::Attach(args) => asker.attach(args).await,
        Command::Detach(args) => asker.delete("attachment", &args.name, !args.waiting.no_wait).await,
        Command::Pool(PoolCommand::Create(args)) => {
            let node = Name(args.node);
            let pool = Pool { node, path: args.path, bytes: args.size, clones: args.clones };
            asker.put(&args.name, Object::Pool(pool), None).await
        }
        Command::Pool(PoolCommand::Delete(args)) => asker.delete("pool", &args.name, false).await,
        Command::Class(ClassCommand::Create(args)) => asker.create_class(&args).await,
        Command::Class(ClassCommand::Delete(args)) => asker.delete("class", &args.name, false).await,
        Command::Link(LinkCommand::Create(args)) => asker.create_link(args).await,
        Command::Link(LinkCommand::Delete(args)) => asker.delete("link", &args.name, false).await,
        Command::Node(command) => asker.node(command).await,
        Command::Recover => {
            let recovered = asker.client.recover().await?;
            asker.say(&recovered, &format!("the fleet has incarnation {} now", recovered.incarnation))
        }
        // `cli::run` has these.
        Command::Up(_)
        | Command::Controller(_)
        | Command::Agent(_)
        | Command::Join(_)
        | Command::Csi(_)
        | Command::Openapi => Ok(()),
    }
}

struct Asker {
    client: Client,
    /// Seconds.
    timeout: u64,
    json: bool,
}

impl Asker {
    fn options(&self, wait: Option<WaitFor>) -> Options {
        Options { wait, timeout: Some(self.timeout), present: false }
    }

    fn say(&self, value: &impl serde::Serialize, sentence: &str) -> Result<(), Error> {
        if self.json { print::json(value) } else { print::line(sentence) }
    }

    fn show(&self, item: Option<&Item>) -> Result<(), Error> {
        match item {
            Some(item) if self.json => print::json(item),
            Some(item) => print::table(std::slice::from_ref(item)),
            None => self.say(&serde_json::Value::Null, "gone"),
        }
    }

    async fn put(&self, name: &str, object: Object, wait: Option<WaitFor>) -> Result<(), Error> {
        check_name(name)?;
        let item = self.client.put(name, &object, &self.options(wait), None).await?;
        self.show(item.as_ref())
    }

    /// Changes an object that is there, unless another user has changed it meanwhile.
    async fn change(&self, item: Item, wait: Option<WaitFor>) -> Result<(), Error> {
        let Item { name, object, revision, .. } = item;
        let item = self.client.put(&name.0, &object, &self.options(wait), Some(revision)).await?;
        self.show(item.as_ref())
    }

    async fn delete(&self, kind: &str, name: &str, wait: bool) -> Result<(), Error> {
        check_name(name)?;
        let options = self.options(wait.then_some(WaitFor::Gone));
        let item = self.client.delete(kind, name, &options).await?;
        self.show(item.as_ref())
    }

    async fn get(&self, args: &GetArgs) -> Result<(), Error> {
        match &args.name {
            Some(name) => {
                check_name(name)?;
                let item = self.client.get(&args.kind, name).await?;
                self.show(Some(&item))
            }
            None => {
                let items = self.client.list(&args.kind).await?;
                if self.json { print::json(&crate::api::Items { items }) } else { print::table(&items) }
            }
        }
    }

    async fn watch(&self, args: &WatchArgs) -> Result<(), Error> {
        let until = args.until.as_deref().map(|until| {
            until.split_once('=').ok_or_else(|| Error::Wrong("--until expects NAME=PHASE".to_owned()))
        });
        let until = until.transpose()?;
        let mut printed = Ok(());
        let watched = self.client.watch(|change| {
            if args.kind.as_ref().is_some_and(|kind| *kind != change.kind) {
                return true;
            }
            printed = if self.json { print::json(&change) } else { print::change(&change) };
            let phase =
                change.item.as_ref().and_then(|item| item.status.as_ref()).map(|status| &status.phase);
            let is_end = until.is_some_and(|(name, wanted)| {
                name == change.name.0 && phase.is_some_and(|phase| phase == wanted)
            });
            printed.is_ok() && !is_end
        });
        watched.await?;
        printed
    }

    async fn status(&self) -> Result<(), Error> {
        let health = self.client.health().await?;
        if self.json {
            return print::json(&health);
        }
        let leads = if health.leads { "leads" } else { "does not lead" };
        print::line(&format!("controller {} {leads}; farlane {}", health.controllers, health.version))?;
        let store = health.store.map_or("there".to_owned(), |why| format!("away: {why}"));
        print::line(&format!("the store is {store}"))?;
        let names: Vec<_> = health.connected.iter().map(|name| name.0.as_str()).collect();
        print::line(&format!("{} agents are connected: {}", names.len(), names.join(", ")))?;
        if health.needs_recovery {
            print::line("owners know more than the store, which was restored: farlane fleet recover")?;
        }
        Ok(())
    }

    async fn orphans(&self) -> Result<(), Error> {
        let found = self.client.orphans().await?;
        if self.json {
            return print::json(&found);
        }
        for one in &found.orphans {
            let what = match &one.attachment {
                Some(attachment) => format!("device of {} for {}", one.volume.0, attachment.0),
                None => match &one.snapshot {
                    Some(snapshot) => format!("snapshot {} of {}", snapshot.0, one.volume.0),
                    None => format!("volume {}", one.volume.0),
                },
            };
            print::line(&format!("{}: {what}", one.node.0))?;
        }
        print::line(&format!("{} orphans", found.orphans.len()))
    }

    async fn token(&self, args: &TokenArgs) -> Result<(), Error> {
        check_name(&args.node)?;
        let health = self.client.health().await?;
        let secret = serve::random::<16>()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = (now + args.lifetime).as_secs();
        let token = Token { secret: Hex(Sha256::digest(secret).into()), expires, used_by: None };
        let options = self.options(None);
        self.client.put(&args.node, &Object::Token(token), &options, None).await?;
        let text = format!("{}:{}@{}", args.node, Hex(secret), health.controllers);
        self.say(&serde_json::json!({ "token": text, "expires": expires }), &text)
    }

    async fn create_volume(&self, args: VolumeCreate) -> Result<(), Error> {
        let source = args.from;
        let bytes = match (args.size, &source) {
            (Some(bytes), _) => bytes,
            (None, Some(source)) => self.size_of(source).await?,
            (None, None) => return Err(Error::Wrong("--size is missing".to_owned())),
        };
        let volume = Volume {
            bytes,
            class: args.class.map(Name),
            near: args.near.map(Name),
            pool: args.pool.map(Name),
            delete: false,
            epoch: Epoch(fleet::Epoch::default()),
            admitted: Vec::new(),
            source: source.clone(),
            copied: false,
        };
        let wait = (!args.waiting.no_wait).then_some(WaitFor::Ready);
        check_name(&args.name)?;
        let put = self.client.put(&args.name, &Object::Volume(volume), &self.options(wait), None).await;
        let item = self.explain_delay("volume", &args.name, put).await?;
        if let Some(Item { object: Object::Volume(made), .. }) = &item
            && made.source != source
        {
            return Err(Error::Wrong(format!(
                "the volume {} has no source: the controller is of an earlier version and made it empty; \
                 delete it, and update all controllers",
                args.name
            )));
        }
        self.show(item.as_ref())
    }

    /// The size of data from which a volume is made.
    async fn size_of(&self, source: &Data) -> Result<u64, Error> {
        let key = source.0.key();
        match self.client.get(key.kind.word(), key.name.as_str()).await?.object {
            Object::Volume(volume) => Ok(volume.bytes),
            Object::Snapshot(snapshot) => Ok(snapshot.bytes),
            _ => Err(Error::Wrong(format!("{source} has no size: name one with --size"))),
        }
    }

    async fn create_snapshot(&self, args: SnapshotCreate) -> Result<(), Error> {
        check_name(&args.name)?;
        let snapshot = Snapshot {
            volume: Name(args.volume.clone()),
            pool: Name(args.volume),
            bytes: 0,
            taken: None,
            delete: false,
            epoch: Epoch(fleet::Epoch::default()),
        };
        let wait = (!args.waiting.no_wait).then_some(WaitFor::Ready);
        let put = self.client.put(&args.name, &Object::Snapshot(snapshot), &self.options(wait), None).await;
        let item = self.explain_delay("snapshot", &args.name, put).await?;
        self.show(item.as_ref())
    }

    /// In place of "not in time": the reason.
    async fn explain_delay(
        &self,
        kind: &str,
        name: &str,
        put: Result<Option<Item>, Failure>,
    ) -> Result<Option<Item>, Error> {
        match put {
            Err(failure) if failure.code == FailureCode::Timeout => {
                let item = self.client.get(kind, name).await?;
                let why = item.status.map(|status| status.message).unwrap_or_default();
                let sentence =
                    format!("the {kind} {name} is not ready yet: {why}; it will be when that has changed");
                Err(Failure::new(FailureCode::Timeout, sentence).into())
            }
            put => Ok(put?),
        }
    }

    async fn resize_volume(&self, args: &VolumeResize) -> Result<(), Error> {
        check_name(&args.name)?;
        let mut item = self.client.get("volume", &args.name).await?;
        if let Object::Volume(volume) = &mut item.object {
            volume.bytes = args.size;
        }
        self.change(item, (!args.waiting.no_wait).then_some(WaitFor::Ready)).await
    }

    async fn attach(&self, args: AttachArgs) -> Result<(), Error> {
        let name = args.name.unwrap_or_else(|| format!("{}-{}", args.volume, args.node));
        let (volume, node) = (Name(args.volume), Name(args.node));
        let AttachArgs { mode, transport, owner, .. } = args;
        let attachment = Attachment { volume, node, mode, transport, owner, detach: false };
        let wait = (!args.waiting.no_wait).then_some(WaitFor::Attached);
        let put = self.put(&name, Object::Attachment(attachment), wait).await;
        // In place of "not in time": the reason.
        match put {
            Err(Error::Failure(failure)) if failure.code == FailureCode::Timeout => {
                let item = self.client.get("attachment", &name).await?;
                let why = item.status.map(|status| status.message).unwrap_or_default();
                let sentence = format!("{name} is not attached yet: {why}; it will be when that has changed");
                Err(Failure::new(FailureCode::Timeout, sentence).into())
            }
            put => put,
        }
    }

    async fn create_class(&self, args: &ClassCreate) -> Result<(), Error> {
        let p99 = args.p99.map(|p99| Nanoseconds(u64::try_from(p99.as_nanos()).unwrap_or(u64::MAX)));
        let class = Class { p99, bandwidth: args.bandwidth };
        self.put(&args.name, Object::Class(class), None).await
    }

    async fn create_link(&self, args: LinkCreate) -> Result<(), Error> {
        let scenario = std::fs::read_to_string(&args.scenario);
        let scenario = scenario.map_err(|error| Error::File(args.scenario, error))?;
        let labels = |labels: Vec<(String, String)>| labels.into_iter().collect::<BTreeMap<_, _>>();
        let link = Link { between: [labels(args.between), labels(args.and)], scenario };
        self.put(&args.name, Object::Link(link), None).await
    }

    async fn node(&self, command: NodeCommand) -> Result<(), Error> {
        let (name, cordon, owner) = match command {
            NodeCommand::Cordon(args) => {
                let cordon = Cordon { owner: args.owner.clone(), reason: args.reason };
                (args.name, Some(cordon), args.owner)
            }
            NodeCommand::Uncordon(args) => (args.name, None, args.owner),
            NodeCommand::Forget(args) => return self.delete("node", &args.name, false).await,
        };
        check_name(&name)?;
        let mut item = self.client.get("node", &name).await?;
        if let Object::Node(node) = &mut item.object {
            check_cordon(&name, node, &owner)?;
            node.cordon = cordon;
        }
        self.change(item, None).await
    }
}

/// Checks that a cordon is the user's own, if there is one.
fn check_cordon(name: &str, node: &Node, owner: &str) -> Result<(), Error> {
    match &node.cordon {
        Some(cordon) if cordon.owner != owner => Err(Error::Wrong(format!(
            "{name} was cordoned by {} ({}), who ends that: --owner {} if that is you",
            cordon.owner, cordon.reason, cordon.owner
        ))),
        _ => Ok(()),
    }
}

/// Checks a name before it becomes part of a path.
fn check_name(name: &str) -> Result<(), Error> {
    fleet::Name::new(name).map(|_| ()).map_err(|error| Error::Wrong(error.to_string()))
}
