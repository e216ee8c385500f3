//! Messages and remedies for errors that have several causes.

use std::io;
use std::path::Path;

use live::client::AttachError;
use live::sys::unix::BindError;
use nvme_fabrics::host::Failure;

/// The remedy for a file that can't be read or written.
pub(super) const fn of_file(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind as Kind;
    match kind {
        Kind::NotFound => "check the path: the file, or the folder that it is to be in, does not exist",
        Kind::PermissionDenied => "choose a file to which this user has access",
        Kind::IsADirectory => "name a file in it instead",
        Kind::Unsupported => "name another one",
        Kind::StorageFull | Kind::QuotaExceeded => "make room, or choose another place",
        _ => "check the file and the disk that it is on",
    }
}

/// The remedy for a subsystem that is not reached, or does not let this host in.
pub(super) fn of_subsystem(error: &AttachError) -> &'static str {
    match error {
        // The subsystem lets this name in, and asks for proof.
        AttachError::HostRefused { failure: Failure::Authentication { .. }, .. } => {
            "the target needs the same secret for this host's NQN: --dhchap-secret-file FILE names this host's \
             secret, and ?hostnqn=NQN behind the URL names another host"
        }
        AttachError::HostRefused { .. } => {
            "let this NQN in at the target (farlane target --host NQN), or use an NQN that the target lets in: ?hostnqn=NQN behind the URL; a target that demands authentication needs --dhchap-secret-file FILE, and a target that demands encryption needs --tls-key-file FILE"
        }
        _ => {
            "farlane use discover nvme-tcp://HOST:PORT, or nvme-rdma://HOST:PORT, lists the subsystems of a target; tcp://HOST:PORT reaches a farlane export"
        }
    }
}

/// The remedy for a card at `place` that does not fulfil a request.
pub(super) fn of_card(place: &str) -> &'static str {
    match place.starts_with("vfio-user:") {
        true => {
            "check that farlane measure nic serve, which has this card, runs and reports that its link is up"
        }
        false => {
            "both ends of a wire name the same place; farlane measure nic receive WIRE --echo answers there"
        }
    }
}

/// The remedy for a wire at `place` that can't be used.
pub(super) fn of_wire(place: &str) -> &'static str {
    match place.split_once(':').map(|(kind, _)| kind) {
        Some("eth") => {
            "ip link shows the interfaces; to use one takes the capability CAP_NET_RAW: run as root, or with setcap cap_net_raw+ep"
        }
        Some("udp") => "both ends name the same address and port, which is one of them's own",
        _ => "choose a path in a directory that you may write to",
    }
}

/// The remedy for a socket that can't be made.
pub(super) const fn of_socket(error: &BindError) -> &'static str {
    match error {
        BindError::TooLong(_) => "choose a shorter path: $XDG_RUNTIME_DIR/ssd.sock is one as a rule",
        BindError::InUse => "choose another path, or end the process that listens there",
        BindError::NotASocket => "choose another path, or remove the file that is there",
        BindError::NoDirectory(_) => "create the directory first, or choose another path",
        BindError::Io(_) => "choose a path in a directory that you may write to",
    }
}

/// Why it is not clear which daemon is meant.
pub(super) fn which(kind: &str, sockets: &[String], folder: &Path) -> String {
    match sockets {
        [] => format!("no farlane {kind} of this user has its control socket in {}", folder.display()),
        several => format!("there are {} of farlane {kind}: {}", several.len(), several.join(", ")),
    }
}
