//! Everything that can go wrong, with the remedy.

mod asked;
mod block;
mod capture;
mod carrier;
pub(crate) mod code;
mod conversion;
mod daemon;
mod ending;
mod nvme_cli;
mod remedies;
mod thread;
mod tsn;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use engine::Nanos;
use live::client::{AttachError, SubmitError};
use live::media::OpenError;
use live::media::state::StateError;
use live::sys::unix::BindError;
use miette::Diagnostic;
use nvme::wire::Status;
use thiserror::Error as ThisError;

pub(crate) use asked::DaemonError;
pub(crate) use block::BlockError;
pub(crate) use capture::CaptureError;
pub(crate) use carrier::CarrierError;
pub(crate) use nvme_cli::NvmeError;
pub(crate) use thread::ThreadError;
pub(crate) use tsn::TsnError;

/// An error for a user: the failed action, the reason, and the remedy.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum Error {
    #[error("{0}")]
    #[diagnostic(help("start a far end there first: farlane export --listen HOST:PORT --ram 1GiB"))]
    Unreachable(AttachError),

    #[error("{0}")]
    #[diagnostic(help("one host at a time may use a far end: try again later, or export another device"))]
    InUse(AttachError),

    #[error("{0}")]
    #[diagnostic(help("is it a farlane export that listens there, and of this version ({})?", env!("CARGO_PKG_VERSION")))]
    Refused(AttachError),

    #[error("{0}")]
    #[diagnostic(help("docs/security.md shows how two ends exchange their keys"))]
    Forbidden(AttachError),

    #[error("{0}")]
    #[diagnostic(help("farlane setup key --help shows how two ends exchange their keys"))]
    Trust(AttachError),

    #[error("{0}")]
    #[diagnostic(help(
        "?key=FINGERPRINT names the right far end; farlane setup key trust HOST:PORT FINGERPRINT --replace replaces a remembered key"
    ))]
    SomebodyElse(AttachError),

    #[error("{0}")]
    #[diagnostic(help(
        "start one there first: farlane offer device --vfio-user SOCKET --ram 1GiB, or farlane attach --vfio-user SOCKET tcp://HOST:PORT"
    ))]
    NoSocket(AttachError),

    #[error("{0}")]
    #[diagnostic(help("one client at a time may use a device: wait for it, or offer another device"))]
    TurnedAway(AttachError),

    #[error("{0}")]
    Attach(AttachError),

    #[error("{0}")]
    #[diagnostic(help("{}", remedies::of_subsystem(.0)))]
    Fabrics(AttachError),

    #[error("{server}: {why}")]
    #[diagnostic(help("{remedy}"))]
    Measurement { server: std::net::SocketAddr, why: String, remedy: &'static str },

    #[error("{why}")]
    #[diagnostic(help("{remedy}"))]
    NoSuchMeasurement { why: &'static str, remedy: &'static str },

    #[error("there is no card at {place}: {why}")]
    #[diagnostic(help(
        "farlane measure nic serve --vfio-user SOCKET --wire WIRE serves a card at vfio-user:SOCKET; a wire (shm:PATH, udp:ADDRESS:PORT, eth:IFACE, loop:) needs no server"
    ))]
    NoCard { place: String, why: String },

    #[error("the wire {place} can't be used: {why}")]
    #[diagnostic(help("{}", remedies::of_wire(place)))]
    NoWire { place: String, why: String },

    #[error("{place}: {why}")]
    #[diagnostic(help("{}", remedies::of_card(place)))]
    Card { place: String, why: String },

    #[error("{command}: the command was not taken: {error}")]
    FabricsCommand { command: &'static str, error: SubmitError },

    #[error("{0}")]
    #[diagnostic(help(
        "is it the port of a target or of its discovery service, often 8009 or 4420? tcp://HOST:PORT reaches a farlane export; --timeout limits the time of the attempts"
    ))]
    NoDiscovery(AttachError),

    #[error("{0}")]
    #[diagnostic(help("is that a discovery controller? its port is often 8009 or 4420"))]
    Discovery(nvme_fabrics::host::discovery::ReadError),

    #[error("{0}")]
    #[diagnostic(help("without --mdns, name the address of the discovery service: nvme-tcp://HOST:PORT"))]
    Mdns(#[from] live::drivers::mdns::MdnsError),

    #[error("--listen {address} has nothing to offer")]
    #[diagnostic(help("give a --namespace or --ram behind each --listen; see farlane export --help"))]
    NothingToExport { address: std::net::SocketAddr },

    #[error("--serial {serial} for {count} far ends, which need one each")]
    #[diagnostic(help("leave it out: each far end derives one from its namespaces"))]
    OneSerial { serial: String, count: usize },

    #[error(transparent)]
    #[diagnostic(help("each --namespace needs a file or block device of its own (farlane export --help)"))]
    Open(#[from] OpenError),

    #[error("{error}")]
    #[diagnostic(help("{}", error.remedy()))]
    Vfio { error: live::media::nvme::OpenError },

    #[error(transparent)]
    #[diagnostic(help("{}", .0.remedy()))]
    State(#[from] StateError),

    #[error("--pool {} requires --state", path.display())]
    #[diagnostic(help("--state FILE names the file that keeps the places of namespaces; farlane makes it"))]
    PoolWithoutState { path: PathBuf },

    #[error("--state {} and --state {} for one SSD", first.display(), second.display())]
    #[diagnostic(help("give one of them; with several --listen, each --state goes behind its own"))]
    TwoStates { first: PathBuf, second: PathBuf },

    #[error("{count} paths to one far end, of at most {most}")]
    #[diagnostic(help("leave out the slowest --second-path"))]
    TooManyPaths { count: usize, most: usize },

    #[error("--second-path {path} could lead to any of {count} far ends")]
    #[diagnostic(help("name one far end, or leave --second-path out"))]
    WhosePath { path: String, count: usize },

    #[error("--dhchap-secret-file and --tls-key-file are for nvme-tcp:// subsystems, and this is none")]
    #[diagnostic(help(
        "leave the option out; tcp://HOST:PORT?key=FINGERPRINT names a far end that must prove this key (docs/security.md)"
    ))]
    NoSecrets,

    #[error("can't make {}: {error}", path.display())]
    #[diagnostic(help("choose another file: a secret is never written over"))]
    NewSecret { path: PathBuf, error: std::io::Error },

    #[error("{address} is reachable from other machines, and hosts of {subsystem} need no authentication")]
    #[diagnostic(help(
        "farlane setup key tls FILE makes a key: --host NQN --tls-key-file FILE encrypts and lets in this host alone, and so does tls-key-file in [[subsystem.host]]; --insecure, or insecure = true, offers it to every host that connects"
    ))]
    ExposedSubsystem { address: std::net::SocketAddr, subsystem: String },

    #[error("the target has {count} TLS keys, and {most} at most are allowed")]
    #[diagnostic(help("offer subsystems of fewer hosts, or start a second target"))]
    TooManyTlsKeys { count: usize, most: usize },

    #[error("--mdns announces the discovery service, which --discovery closed switches off")]
    #[diagnostic(help("leave one of the two out"))]
    NothingToAnnounce,

    #[error("an SSD has {count} namespaces, pools and state files, and {most} at most are allowed")]
    #[diagnostic(help("offer fewer namespaces, or share them out among several SSDs or subsystems"))]
    TooManyMedia { count: usize, most: usize },

    #[error("{0}")]
    MediaFull(#[from] live::media::MediaFull),

    #[error("--allow-path {}: there is no such file or folder", path.display())]
    #[diagnostic(help("make it first, or leave the option out"))]
    NothingToAllow { path: PathBuf },

    #[error("this process can't be confined: {0}")]
    #[diagnostic(help("--no-sandbox starts it without confinement"))]
    Sandbox(std::io::Error),

    #[error("{} can't be given up: {error}", user.as_ref().map_or_else(|| "system calls".to_owned(), |user| format!("the rights of this user for those of {user}")))]
    #[diagnostic(help(
        "only root may become another user, and --user needs the name of an existing user; --no-sandbox keeps all system calls"
    ))]
    Renounce { user: Option<String>, error: std::io::Error },

    #[error("--spread is for one way over tcp://, not for {with}")]
    #[diagnostic(help("leave --spread out"))]
    NoSpread { with: String },

    #[error(transparent)]
    #[diagnostic(help("{}", .0.remedy()))]
    Tcp(#[from] live::carrier::tcp::Unavailable),

    #[error("can't listen on {address}: {error}")]
    #[diagnostic(help("choose another --listen address; port 0 lets the system choose one"))]
    Listen { address: std::net::SocketAddr, error: io::Error },

    #[error(transparent)]
    #[diagnostic(transparent)]
    Carrier(#[from] CarrierError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Block(#[from] BlockError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Nvme(#[from] NvmeError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Tsn(#[from] TsnError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Capturing(#[from] CaptureError),

    #[error(transparent)]
    #[diagnostic(help("{}", .0.help()))]
    Key(#[from] live::carrier::identity::KeyError),

    #[error(transparent)]
    #[diagnostic(help("{}", .0.help()))]
    KnownEnds(#[from] live::carrier::identity::KnownError),

    #[error("{0}")]
    #[diagnostic(help(
        "each line is FINGERPRINT[,name=TEXT][,nsid=N][,readonly][,iops=N][,bandwidth=SIZE], as for --allow"
    ))]
    Admission(#[from] live::carrier::identity::AdmissionError),

    #[error("{address} is reachable from other machines, and this export has no authentication")]
    #[diagnostic(help(
        "--allow FINGERPRINT admits the host whose farlane setup key show prints it, and encrypts; --insecure offers it to every host"
    ))]
    Exposed { address: std::net::SocketAddr },

    #[error("can't listen at {}: {error}", path.display())]
    #[diagnostic(help("{}", remedies::of_socket(error)))]
    Bind { path: PathBuf, error: BindError },

    #[error("can't use QEMU's monitor at {}: {problem}", path.display())]
    #[diagnostic(help("{}", problem.remedy()))]
    HotPlug { path: PathBuf, problem: live::drivers::hot_plug::Problem },

    #[error("there is no device at {}: {why}", path.display())]
    #[diagnostic(help("start its server first; farlane offer device --vfio-user {} --ram 1GiB is one", path.display()))]
    NoDevice { path: PathBuf, why: String },

    #[error("the device at {} can't be offered at {count} addresses", path.display())]
    #[diagnostic(help("one host at a time may use a device: give --listen once"))]
    OneDevice { path: PathBuf, count: usize },

    #[error("not everything is saved: {0}")]
    #[diagnostic(help(
        "unsaved changes will be lost, and the next start will report an unsafe shutdown; free space, or make the directory \
         writable, before that"
    ))]
    NotSaved(StateError),

    #[error("{0}")]
    #[diagnostic(help("farlane model sim --help has examples"))]
    Simulation(String),
    #[error("there is no such plan: {0}")]
    #[diagnostic(help(
        "a longer --cycle, fewer or shorter --frame, a faster --rate or --preemption make room; see farlane model tsn plan --help"
    ))]
    Plan(network_models::tsn::plan::PlanError),

    #[error("{count} names of ports for {hops} hops")]
    #[diagnostic(help("give --device once for each hop, or not at all"))]
    Devices { count: usize, hops: usize },

    #[error("{command} ended with {status}")]
    Command { command: &'static str, status: Status },

    #[error("{command} ended with {status}: {bytes} B at byte {offset} of the namespace")]
    #[diagnostic(help(
        "--offset and --length choose a part without these bytes; with a smaller --bs, fewer of them fail together"
    ))]
    Copy { command: &'static str, status: Status, offset: u64, bytes: usize },

    #[error("{count} commands failed, the first with {first}")]
    Failures { count: u64, first: String },

    #[error("{command} was not taken: {error}")]
    #[diagnostic(help("the far end has gone and was not back in time, or its controller has failed"))]
    Submit { command: &'static str, error: SubmitError },

    #[error("{command} was not answered within {timeout}")]
    #[diagnostic(help("the link may be down: farlane measure ping URL checks it"))]
    Unanswered { command: &'static str, timeout: Nanos },

    #[error("namespace {wanted} does not exist; there are: {there}")]
    #[diagnostic(help("choose one of them with --namespace"))]
    NoNamespace { wanted: u32, there: String },

    #[error("namespace {wanted} does not exist, nor does any other")]
    #[diagnostic(help(
        "the controller has no namespace attached: nvme create-ns and attach-ns on its host, or another --namespace or --ram where it is offered, make one"
    ))]
    NoNamespaces { wanted: u32 },

    #[error(
        "namespace {namespace} has {bytes} B of metadata beside each block, which is no protection information of Type 1 with a 16b or 64b guard"
    )]
    #[diagnostic(help(
        "format it without metadata, or with such protection: farlane nvme identify URL shows its formats"
    ))]
    Metadata { namespace: u32, bytes: u16 },

    #[error("{why}")]
    #[diagnostic(help("farlane nvme identify URL shows the namespaces that are there"))]
    FarNamespace { why: String },

    #[error("--verify compares nothing with --rw {workload}: only data of this run's writes are known")]
    #[diagnostic(help("use --rw write, randwrite, rw or randrw with --verify, or leave --verify out"))]
    NothingToVerify { workload: String },

    #[error("no data were verified: no write succeeded")]
    #[diagnostic(help("a longer --runtime lets writes end; the errors above say why they failed"))]
    NothingVerified,

    #[error("refusing to write binary data to a terminal, which standard output is")]
    #[diagnostic(help("--output FILE writes them to a file; | hexdump -C shows them"))]
    Terminal,

    #[error("{url} is given twice")]
    #[diagnostic(help("one host at a time may use a far end: give each of them once"))]
    GivenTwice { url: String },

    #[error("{what} {value} does not fit: expected {expected}")]
    Range { what: &'static str, value: u64, expected: String },

    #[error("the namespace is full: {written} B are written and durable, and the input has more")]
    #[diagnostic(help("--length limits the bytes to write; a larger namespace holds more"))]
    Full { written: u64 },

    #[error("the input ended after {written} B of --length {wanted}: they are written and durable")]
    #[diagnostic(help("leave --length out to write all of an input, however long it is"))]
    EndedEarly { wanted: u64, written: u64 },

    #[error("{}: {error}", path.display())]
    #[diagnostic(help("{}", remedies::of_file(error.kind())))]
    File { path: PathBuf, error: io::Error },

    #[error("{}: {why}", path.display())]
    #[diagnostic(help("docs/target.md shows a whole file"))]
    Config { path: PathBuf, why: String },

    #[error("{}: line {line}, column {column}: {why}", path.display())]
    #[diagnostic(help(
        "the keys of a table are the long options that its command has in --help; docs/config.md shows a file"
    ))]
    Options { path: PathBuf, line: usize, column: usize, why: String },

    #[error("{}: {why}", path.display())]
    #[diagnostic(help("docs/bench.md lists the parameters that farlane bench understands"))]
    JobFile { path: PathBuf, why: String },

    #[error("{}: {why}", path.display())]
    #[diagnostic(help("docs/emulate.md shows every key; latency and rate are enough for a beginning"))]
    Link { path: PathBuf, why: String },

    #[error("--connect {error}")]
    #[diagnostic(help("give the address to reach through the network, such as 127.0.0.1:4430"))]
    Connect { error: io::Error },

    #[error("there is no network namespace {namespace}")]
    #[diagnostic(help("make it first: ip netns add {namespace}; or give a path such as /proc/PID/ns/net"))]
    NoNamespaceFile { namespace: String },

    #[error("a network interface can't be made: {error}")]
    #[diagnostic(help(
        "that takes CAP_NET_ADMIN and CAP_SYS_ADMIN: use sudo, or run all commands within \
         unshare --user --map-root-user --net --mount, where namespaces are your own; --listen and --connect need neither"
    ))]
    NoNetworkAdmin { error: io::Error },

    #[error("no network interface in {namespace}: {error}")]
    #[diagnostic(help("the kernel's TUN driver makes it: modprobe tun"))]
    Interface { namespace: String, error: io::Error },

    #[error("no daemon answers at {}: {error}", path.display())]
    #[diagnostic(help(
        "farlane export, attach, target and record answer at the socket that their --control names: start one first"
    ))]
    Control { path: PathBuf, error: io::Error },

    #[error("control sockets are not kept in {0}")]
    #[diagnostic(help("remove it, or set XDG_RUNTIME_DIR to a folder of this user, or give --control PATH"))]
    Folder(#[from] live::sys::runtime_folder::Unusable),

    #[error("{}", remedies::which(kind, sockets, folder))]
    #[diagnostic(help(
        "name its control socket, which farlane observe list shows; --control PATH gives a process another socket"
    ))]
    WhichDaemon { kind: &'static str, sockets: Vec<String>, folder: PathBuf },

    #[error(transparent)]
    #[diagnostic(transparent)]
    Daemon(#[from] DaemonError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Thread(#[from] ThreadError),

    #[error("{0}")]
    #[diagnostic(help(
        "raise the limit first: ulimit -n {} in the shell that starts it, or LimitNOFILE={} in a systemd unit", .0.needed, .0.needed
    ))]
    Descriptors(#[from] live::sys::descriptors::TooFew),

    #[error("--cpu: {0}")]
    #[diagnostic(help("choose one of these, or leave --cpu out"))]
    Processor(live::reactor::PinError),

    #[error("output: {0}")]
    Output(io::Error),

    #[error("the system lacks resources that this process needs: {0}")]
    #[diagnostic(help(
        "ulimit -n shows how many files a process may open, and ulimit -u how many threads a user may have"
    ))]
    System(io::Error),

    #[error("{what}: {error}")]
    Child { what: &'static str, error: io::Error },

    #[error("the data read differ from the data written: {0}")]
    #[diagnostic(help("the medium or the path to it is broken; do not trust any data of this device"))]
    Corrupt(String),

    #[error("{}: {why}", path.display())]
    #[diagnostic(help("name a file that farlane record has written and writes no more"))]
    Recording { path: PathBuf, why: String },

    #[error("{}: {why}", path.display())]
    #[diagnostic(help("a longer --ring, or a smaller --buffer or --chunk, fits; see docs/record.md"))]
    Ring { path: PathBuf, why: String },

    #[error("--from-time: {asked} is behind the end of the stream, which ends at {end}")]
    #[diagnostic(help("farlane recording info shows the length of a recording"))]
    BehindEnd { asked: String, end: String },

    #[error("--raw: {why}")]
    #[diagnostic(help("docs/record.md describes --raw"))]
    Raw { why: String },

    #[error("--each with {from} --from and {to} --to: expected as many --to as --from")]
    #[diagnostic(help(
        "give each source a place of its own, or leave --each out to record all of them together"
    ))]
    Each { from: usize, to: usize },

    #[error("--to {}: {why}", path.display())]
    #[diagnostic(help("name a file or block device, or a device by one of these URLs"))]
    RecordUrl { path: PathBuf, why: String },

    #[error("{}: another recorder writes to it", path.display())]
    #[diagnostic(help("end that recorder first, or name another file"))]
    Recorded { path: PathBuf },

    #[error("--from {url} is where the recording goes, too: it would feed on itself")]
    #[diagnostic(help("name another file with --to"))]
    FeedsItself { url: String },

    #[error("--to {}: this is the recording itself, and it would be overwritten", path.display())]
    #[diagnostic(help("name another file"))]
    OverItself { path: PathBuf },

    #[error("--from - is given twice, and there is one standard input")]
    #[diagnostic(help("give --from - once, and file:PATH for a file or named pipe"))]
    TwoInputs,

    #[error("{} at byte {offset}: {what}", path.display())]
    #[diagnostic(help("farlane observe trace reads pcap and pcapng; the bytes before that one are intact"))]
    BrokenCapture { path: PathBuf, offset: u64, what: Cow<'static, str> },

    #[error("--capture: neither PCIe packets nor a fabric's bytes of {url} pass here")]
    #[diagnostic(help(
        "farlane observe capture shows the packets of a farlane offer device behind vfio-user; tcpdump and ibdump capture RDMA's"
    ))]
    NothingToTrace { url: String },

    #[error("{what} loses data for good")]
    #[diagnostic(help("give --force if these data are not needed any more"))]
    WithoutForce { what: String },

    #[error("the lowest two bits of opcode {opcode:#04x} give its data the other direction")]
    #[diagnostic(help("give --read for opcodes that end in 10b, --write for opcodes that end in 01b"))]
    DataDirection { opcode: u8 },

    #[error("{} has contents already, which would be overwritten", path.display())]
    #[diagnostic(help("name another file, or give --force"))]
    Occupied { path: PathBuf },

    #[error("{}: the recording does not prove that every byte is stored or declared as lost: {why}", path.display())]
    #[diagnostic(help(
        "farlane recording recover finds the stored data, declares the rest lost and certifies the recording"
    ))]
    NotProved { path: PathBuf, why: String },

    #[error("{}: the recording is not certified: the written data were read again, and {doubt}", path.display())]
    #[diagnostic(help(
        "the recording contradicts itself, or the medium does not keep written data: copy it, and recover the copy"
    ))]
    Contradiction { path: PathBuf, doubt: record::Doubt },

    #[error("{}: the certificate is not signed with the key {asked}", path.display())]
    #[diagnostic(help(
        "farlane recording verify without --signed-by shows whose signature there is; farlane record --sign makes one"
    ))]
    NotSigned { path: PathBuf, asked: live::carrier::identity::Fingerprint },

    #[error("{}: measuring overwrites its contents", path.display())]
    #[diagnostic(help("give --overwrite if its contents are not needed any more"))]
    Overwritten { path: PathBuf },

    #[error("{}: {chunks} chunks were written in {time}, too few for a rate", path.display())]
    #[diagnostic(help("--measure 2m measures for longer"))]
    TooLittleMeasured { path: PathBuf, chunks: usize, time: Nanos },

    #[error("{}: a recording at {rate} does not fit", path.display())]
    #[diagnostic(help("a shorter recording, a lower rate, more room or a faster medium does"))]
    DoesNotFit { path: PathBuf, rate: String },

    #[error("{}: datagrams are lost at any rate, and the limit is the {part}", path.display())]
    #[diagnostic(help("{remedy}"))]
    AlwaysLost { path: PathBuf, part: &'static str, remedy: &'static str },

    #[error("sending datagrams to this host itself: {0}")]
    #[diagnostic(help("check that lo is up, and that ulimit -n leaves two descriptors a stream"))]
    Datagrams(io::Error),

    #[error("--from {url}: {error}")]
    #[diagnostic(help("check that the source is there; see farlane record --help"))]
    Source { url: String, error: io::Error },

    #[error("--metrics {address}: {error}")]
    #[diagnostic(help("name an address of this machine and a free port, such as 127.0.0.1:0"))]
    Metrics { address: std::net::SocketAddr, error: io::Error },

    #[error("--listen {address}: {error}")]
    #[diagnostic(help("name an address of this machine and a free port, such as 127.0.0.1:0"))]
    Page { address: std::net::SocketAddr, error: io::Error },

    #[error("--from packets:{interface}: the capability CAP_NET_RAW is missing")]
    #[diagnostic(help("run as root, or once: setcap cap_net_raw+ep $(command -v farlane)"))]
    Capture { interface: String },

    #[error("--to: {error}")]
    #[diagnostic(help("check that the destination accepts bytes; see farlane recording replay --help"))]
    Replay { error: io::Error },

    #[error("--to {}: the ending names no format", path.display())]
    #[diagnostic(help("expected .pcapng, .pcap, .mcap, .sigmf or .raw; otherwise --format names it"))]
    NoFormat { path: PathBuf },

    #[error("{why}")]
    #[diagnostic(help("farlane recording info RECORDING names the streams"))]
    Export { why: String },

    #[error("farlane has no command {name}, and so no page of it")]
    #[diagnostic(help("farlane --help lists the commands"))]
    NoPage { name: String },

    #[error("RUST_LOG: {0}")]
    #[diagnostic(help("expected levels such as info, or by module: farlane=debug,quinn_proto=warn"))]
    LogFilter(String),

    #[error("--log journal: {0}")]
    #[diagnostic(help("without systemd's journal on this machine, --log text or --log json is left"))]
    Journal(io::Error),

    #[error("this machine lacks {missing} of the requirements")]
    #[diagnostic(help("the remedy stands below each of them"))]
    Lacking { missing: usize },

    #[error("interrupted")]
    Interrupted,
}
