//! `farlane observe trace dissector`: the script by which Wireshark decodes our captures and the
//! tunnel.

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::args::DissectorArgs;
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::whole_file;

const SCRIPT: &str = include_str!("../../../../../share/wireshark/farlane.lua");
/// The name of the script among other plugins.
const NAME: &str = "farlane.lua";
/// Where Wireshark looks for a user's plugins, below the home directory.
const PLUGINS: &str = ".local/lib/wireshark/plugins";

/// The script by which Wireshark decodes captures and the tunnel.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Script {
    /// The script itself.
    dissector: &'static str,
}

/// Where the script was installed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Installed<'a> {
    path: &'a Path,
}

pub(super) fn run(args: &DissectorArgs) -> Result<(), Error> {
    if !args.install {
        return match args.output.json {
            true => print_json(&Script { dissector: SCRIPT }),
            false => print(SCRIPT),
        };
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(PLUGINS));
    let folder = args.to.clone().or_else(home).ok_or_else(|| Error::File {
        path: Path::new("$HOME").join(PLUGINS),
        error: io::ErrorKind::NotFound.into(),
    })?;
    let path = folder.join(NAME);
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|error| Error::File { path: path.clone(), error })?;
    whole_file::replace(&path, SCRIPT.as_bytes())?;
    match args.output.json {
        true => print_json(&Installed { path: &path }),
        false => {
            print(&format!("{}\nWireshark and tshark use it from their next start on\n", path.display()))
        }
    }
}
