//! `farlane key`: make a key, show its fingerprint, remember a far end's.

use live::carrier::identity::{Identity, KnownEnds};
use serde_json::json;

use super::{print, print_json};
use crate::args::{KeyAction, KeyArgs, TrustArgs};
use crate::error::Error;

pub(crate) fn run(action: &KeyAction) -> Result<(), Error> {
    match action {
        KeyAction::New(args) => tell_key(args, &Identity::create(&args.path())?, &[]),
        KeyAction::Show(args) => show(args),
        KeyAction::Trust(args) => trust(args),
    }
}

fn show(args: &KeyArgs) -> Result<(), Error> {
    let identity = Identity::read(&args.path())?;
    tell_key(args, &identity, &KnownEnds::of_user().read()?)
}

fn tell_key(
    args: &KeyArgs,
    identity: &Identity,
    known: &[(String, live::carrier::identity::Fingerprint)],
) -> Result<(), Error> {
    let (path, key) = (args.path(), identity.fingerprint());
    if args.output.json {
        let known: Vec<_> =
            known.iter().map(|(name, key)| json!({ "name": name, "key": key.to_string() })).collect();
        return print_json(&json!({ "key": key.to_string(), "file": path, "known": known }));
    }
    let mut text = format!("{key}\n  in {}\n", path.display());
    text += &format!("  a far end admits this host with: farlane export --allow {key}\n");
    for (name, key) in known {
        text += &format!("  remembered: {name} is {key}\n");
    }
    print(&text)
}

fn trust(args: &TrustArgs) -> Result<(), Error> {
    let known = KnownEnds::of_user();
    known.remember(&args.name, args.key, args.replace)?;
    if args.output.json {
        return print_json(&json!({ "name": args.name, "key": args.key.to_string(), "file": known.path() }));
    }
    print(&format!("tcp://{} and quic://{} now lead to {} only\n", args.name, args.name, args.key))
}
