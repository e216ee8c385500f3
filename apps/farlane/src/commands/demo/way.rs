//! How the demo's near end reaches its far end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::args::{Carrier, DemoArgs, names};
use crate::error::Error;

/// Makes a network with two interfaces, then becomes the program that follows.
const MAKE: &str = "ip link set lo up && ip link add near type veth peer name far \
                    && ip link set near up && ip link set far up && exec \"$0\" \"$@\"";

/// How the near end reaches the far end.
#[derive(Debug)]
pub(super) enum Way {
    Tcp,
    Shm,
    Udp,
    /// Frames between these two interfaces.
    Eth {
        near: String,
        far: String,
    },
}

impl Way {
    /// The way that the arguments ask for. Without interfaces for frames, this process becomes a
    /// demo in a network of its own that has two.
    pub(super) fn of(args: &DemoArgs) -> Result<Self, Error> {
        Ok(match (args.carrier, &args.interfaces) {
            (Carrier::Tcp, _) => Self::Tcp,
            (Carrier::Shm, _) => Self::Shm,
            (Carrier::Udp, _) => Self::Udp,
            (Carrier::Eth, Some((near, far))) => Self::Eth { near: near.clone(), far: far.clone() },
            (Carrier::Eth, None) => {
                let error = in_own_network();
                return Err(Error::Child { what: "a network of its own, by unshare and ip,", error });
            }
        })
    }
}

/// Starts this program again in a network of its own, in place of this process. Returns only if
/// it can't.
fn in_own_network() -> io::Error {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return error,
    };
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let mut command = Command::new("unshare");
    if !is_root {
        command.arg("--map-root-user");
    }
    command.args(["--net", "sh", "-c", MAKE]).arg(own);
    command.args(names::given().into_iter().skip(1)).args(["--interfaces", "near,far"]).exec()
}
