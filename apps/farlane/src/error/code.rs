//! The names of errors for programs: `code` in docs/schemas/error.json.
//!
//! Each name is written down here, so that a variant may be renamed and its code stays.
//! docs/operate.md lists them.

use super::{DaemonError, Error};

/// The code of an error in the arguments.
pub(crate) const USAGE: &str = "usage";

/// Gives each variant of an error its code, and lists the codes.
macro_rules! codes {
    ($error:ident, $codes:ident: $($variant:ident = $code:literal,)* $(; $nested:ident)?) => {
        impl $error {
            /// The error's name for programs, such as `no-namespace`.
            pub(crate) const fn json_code(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $code,)*
                    $(Self::$nested(error) => error.json_code(),)?
                }
            }
        }

        /// Every code of this type.
        #[cfg(test)]
        pub(crate) const $codes: &[&str] = &[$($code),*];
    };
}

codes! { DaemonError, OF_DAEMONS:
    NoFileToSave = "no-file-to-save",
    Asked = "asked",
    Unreadable = "unreadable-status",
    OtherKind = "other-kind",
    Upgrade = "not-upgraded",
    NotOne = "not-one-daemon",
}

codes! { Error, CODES:
    Unreachable = "unreachable",
    InUse = "in-use",
    Refused = "refused",
    Forbidden = "forbidden",
    Trust = "trust",
    SomebodyElse = "somebody-else",
    NoSocket = "no-socket",
    TurnedAway = "turned-away",
    Attach = "attach",
    Fabrics = "fabrics",
    Measurement = "measurement",
    NoSuchMeasurement = "no-such-measurement",
    NoCard = "no-card",
    NoWire = "no-wire",
    Card = "card",
    FabricsCommand = "fabrics-command",
    NoDiscovery = "no-discovery",
    Discovery = "discovery",
    Mdns = "mdns",
    NothingToExport = "nothing-to-export",
    OneSerial = "one-serial",
    Open = "open",
    Vfio = "vfio",
    State = "state",
    PoolWithoutState = "pool-without-state",
    TwoStates = "two-states",
    TooManyPaths = "too-many-paths",
    WhosePath = "whose-path",
    NoSecrets = "no-secrets",
    NewSecret = "new-secret",
    ExposedSubsystem = "exposed-subsystem",
    TooManyTlsKeys = "too-many-tls-keys",
    NothingToAnnounce = "nothing-to-announce",
    TooManyMedia = "too-many-media",
    MediaFull = "media-full",
    NothingToAllow = "nothing-to-allow",
    Sandbox = "sandbox",
    Renounce = "renounce",
    NoSpread = "no-spread",
    Tcp = "tcp",
    Listen = "listen",
    Carrier = "carrier",
    Block = "block",
    Nvme = "nvme",
    Tsn = "tsn",
    Capturing = "capturing",
    Key = "key",
    KnownEnds = "known-ends",
    Admission = "admission",
    Exposed = "exposed",
    Bind = "bind",
    HotPlug = "hot-plug",
    NoDevice = "no-device",
    OneDevice = "one-device",
    NotSaved = "not-saved",
    Simulation = "simulation",
    Plan = "plan",
    Devices = "devices",
    Command = "command",
    Copy = "copy",
    Failures = "failures",
    Submit = "submit",
    Unanswered = "unanswered",
    NoNamespace = "no-namespace",
    NoNamespaces = "no-namespaces",
    Metadata = "metadata",
    FarNamespace = "far-namespace",
    NothingToVerify = "nothing-to-verify",
    NothingVerified = "nothing-verified",
    Terminal = "terminal",
    GivenTwice = "given-twice",
    Range = "range",
    Full = "full",
    EndedEarly = "ended-early",
    File = "file",
    Config = "config",
    Options = "options",
    JobFile = "job-file",
    Link = "link",
    Connect = "connect",
    NoNamespaceFile = "no-namespace-file",
    NoNetworkAdmin = "no-network-admin",
    Interface = "interface",
    Control = "control",
    Folder = "folder",
    WhichDaemon = "which-daemon",
    Descriptors = "descriptors",
    Processor = "processor",
    Thread = "thread",
    Output = "output",
    System = "system",
    Child = "child",
    Corrupt = "corrupt",
    Recording = "recording",
    Ring = "ring",
    BehindEnd = "behind-end",
    Raw = "raw",
    Each = "each",
    RecordUrl = "record-url",
    Recorded = "recorded",
    FeedsItself = "feeds-itself",
    OverItself = "over-itself",
    TwoInputs = "two-inputs",
    BrokenCapture = "broken-capture",
    NothingToTrace = "nothing-to-trace",
    WithoutForce = "without-force",
    DataDirection = "data-direction",
    Occupied = "occupied",
    NotProved = "not-proved",
    Contradiction = "contradiction",
    NotSigned = "not-signed",
    Overwritten = "overwritten",
    TooLittleMeasured = "too-little-measured",
    DoesNotFit = "does-not-fit",
    AlwaysLost = "always-lost",
    Datagrams = "datagrams",
    Source = "source",
    Metrics = "metrics",
    Page = "page",
    Capture = "capture",
    Replay = "replay",
    NoFormat = "no-format",
    Export = "export",
    NoPage = "no-page",
    LogFilter = "log-filter",
    Journal = "journal",
    Lacking = "lacking",
    Interrupted = "interrupted",
    ; Daemon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_there_once_and_looks_like_one() {
        let mut all: Vec<_> = [CODES, OF_DAEMONS, &[USAGE]].concat();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        let is_plain = |code: &&str| code.chars().all(|one| one.is_ascii_lowercase() || one == '-');
        assert!(all.iter().all(is_plain));
        assert_eq!(Error::Interrupted.json_code(), "interrupted");
        assert_eq!(Error::NoNamespaces { wanted: 7 }.json_code(), "no-namespaces");
        assert_eq!(Error::from(DaemonError::Asked { why: "x".to_owned() }).json_code(), "asked");
    }
}
