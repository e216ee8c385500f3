//! `farlane setup key`: make a key or a secret, check it, show a key's fingerprint, remember a far
//! end's.

use std::path::Path;

use live::carrier::identity::{Identity, KnownEnds};
use live::client::AttachError;
use live::drivers::secret_file;
use live::sys::entropy;
use nvme_fabrics::authentication::{Hash, Secret};
use nvme_fabrics::tls::TlsKey;
use schemars::JsonSchema;
use serde::Serialize;

use super::{print, print_json};
use crate::args::{
    DhchapHash, KeyAction, KeyArgs, KeyTestArgs, NewDhchapArgs, NewTlsArgs, Output, TlsHash, TrustArgs,
};
use crate::error::Error;

/// A key of this user, and the far ends that are remembered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Key<'a> {
    /// The fingerprint.
    key: String,
    file: &'a Path,
    known: Vec<Remembered<'a>>,
}

/// A far end that is remembered.
#[derive(Serialize, JsonSchema)]
struct Remembered<'a> {
    name: &'a str,
    /// The fingerprint.
    key: String,
}

/// The remembered key of a far end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Trusted<'a> {
    name: &'a str,
    /// The fingerprint.
    key: String,
    /// The file of remembered far ends.
    file: &'a Path,
}

/// The file of a new secret, and the option that takes it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NewSecret<'a> {
    file: &'a Path,
    /// The option without its dashes.
    option: &'a str,
}

/// The key or secret in a file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tested<'a> {
    file: &'a Path,
    /// The kind of the secret, in words.
    kind: &'static str,
    /// The hash that the key or secret is for, or `none`.
    hash: &'static str,
    /// The length of the key or secret.
    bytes: usize,
}

pub(crate) fn run(action: &KeyAction) -> Result<(), Error> {
    match action {
        KeyAction::New(args) => print_key(args, &Identity::create(&args.path())?, &[]),
        KeyAction::Show(args) => show(args),
        KeyAction::Trust(args) => trust(args),
        KeyAction::Tls(args) => tls(args),
        KeyAction::Dhchap(args) => dhchap(args),
        KeyAction::Test(args) => check(args),
    }
}

fn show(args: &KeyArgs) -> Result<(), Error> {
    let identity = Identity::read(&args.path())?;
    print_key(args, &identity, &KnownEnds::of_user().read()?)
}

fn print_key(
    args: &KeyArgs,
    identity: &Identity,
    known: &[(String, live::carrier::identity::Fingerprint)],
) -> Result<(), Error> {
    let (path, key) = (args.path(), identity.fingerprint());
    if args.output.json {
        let known = known.iter().map(|(name, key)| Remembered { name, key: key.to_string() }).collect();
        return print_json(&Key { key: key.to_string(), file: &path, known });
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
    let (name, key) = (&args.far.name, args.key()?);
    known.remember(name, key, args.replace)?;
    if args.output.json {
        return print_json(&Trusted { name, key: key.to_string(), file: known.path() });
    }
    print(&match args.far.is_address {
        true => format!("tcp://{name}, quic://{name} and udp://{name} now lead to {key} only\n"),
        false => format!("eth:{name} now leads to {key} only\n"),
    })
}

fn tls(args: &NewTlsArgs) -> Result<(), Error> {
    let hash = match args.hash {
        TlsHash::Sha256 => Hash::Sha256,
        TlsHash::Sha384 => Hash::Sha384,
    };
    let key = TlsKey::generate(hash, &mut entropy::system());
    keep(&args.file, &key.emit(), &args.output, "tls-key-file")
}

fn dhchap(args: &NewDhchapArgs) -> Result<(), Error> {
    let hash = match args.hash {
        DhchapHash::None => None,
        DhchapHash::Sha256 => Some(Hash::Sha256),
        DhchapHash::Sha384 => Some(Hash::Sha384),
        DhchapHash::Sha512 => Some(Hash::Sha512),
    };
    let secret = Secret::generate(hash, &mut entropy::system());
    keep(&args.file, &secret.emit(), &args.output, "dhchap-secret-file")
}

/// Writes a new secret to its file. The secret itself is never printed.
fn keep(path: &Path, text: &str, output: &Output, option: &str) -> Result<(), Error> {
    secret_file::create(path, text).map_err(|error| Error::NewSecret { path: path.to_owned(), error })?;
    if output.json {
        return print_json(&NewSecret { file: path, option });
    }
    print(&format!(
        "made {}\n  give both ends the same file: --{option} FILE, or {option} = \"FILE\" in [[subsystem.host]]\n",
        path.display()
    ))
}

fn check(args: &KeyTestArgs) -> Result<(), Error> {
    let refused = |error| AttachError::Secret(error).into();
    let (what, hash, bytes) = match secret_file::read::<TlsKey>(&args.file) {
        Ok(key) => ("TLS key", key.retained_by(), key.hash().length()),
        Err(error) if error.is_of_another_form() => {
            let secret = secret_file::read::<Secret>(&args.file).map_err(refused)?;
            ("DH-HMAC-CHAP secret", secret.transformation(), secret.length())
        }
        Err(error) => return Err(refused(error)),
    };
    let hash = hash.map_or("none", Hash::name);
    if args.output.json {
        return print_json(&Tested { file: &args.file, kind: what, hash, bytes });
    }
    print(&format!("{}: a {what} of {bytes} bytes, hash {hash}\n", args.file.display()))
}
