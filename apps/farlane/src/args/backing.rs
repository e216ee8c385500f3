//! The media of namespaces, as the command line names them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use live::client::Url;
use nvme::media::ram::BYTES_MAX;
use nvme::subsystem::BlockSize;

use super::{note_once, parse_size, parse_time};

/// `--namespace PATH[,size=SIZE][,block=512|4096][,protection=16|64][,metadata=8|16][,readonly]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceSpec {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) block: BlockSize,
    pub(crate) readonly: bool,
}

impl FromStr for NamespaceSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let path = parts.next().filter(|path| !path.is_empty()).ok_or("the path is empty")?;
        let (mut size, mut readonly, mut format) = (None, false, FormatSpec::default());
        let mut given = Vec::new();
        for part in parts {
            note_once(&mut given, part)?;
            match part.split_once('=') {
                Some(("size", text)) => size = Some(parse_size(text)?),
                None if part == "readonly" => readonly = true,
                _ if format.take(part)? => {}
                _ => return Err(format!("'{part}' is not one of: size=SIZE, {FORMAT_WORDS}, readonly")),
            }
        }
        Ok(Self { path: path.into(), size, block: format.block()?, readonly })
    }
}

impl fmt::Display for NamespaceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(size) = self.size {
            write!(f, ",size={size}")?;
        }
        write!(f, ",{}", format_text(self.block))?;
        f.write_str(if self.readonly { ",readonly" } else { "" })
    }
}

/// The value of `--namespace`: a file or block device, or a namespace of another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediumSpec {
    File(NamespaceSpec),
    Far(Box<FarSpec>),
}

impl FromStr for MediumSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if FarSpec::is_url(text) {
            return text.parse().map(|far| Self::Far(Box::new(far)));
        }
        text.parse().map(Self::File)
    }
}

impl MediumSpec {
    /// The same with an absolute path: the daemon that receives it may have another working
    /// directory.
    pub(crate) fn absolute(self) -> Self {
        match self {
            Self::File(spec) => {
                let path = std::path::absolute(&spec.path).unwrap_or(spec.path);
                Self::File(NamespaceSpec { path, ..spec })
            }
            far @ Self::Far(_) => far,
        }
    }
}

impl fmt::Display for MediumSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(spec) => spec.fmt(f),
            Self::Far(spec) => spec.fmt(f),
        }
    }
}

/// How long commands wait for a device that is away, unless `hold=` says otherwise.
const HOLD: Duration = Duration::from_secs(10);

/// `tcp://HOST:PORT[,nsid=N][,hold=TIME][,readonly]`, or another URL of a device with the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FarSpec {
    text: String,
    pub(crate) url: Url,
    /// `None` selects the only namespace.
    pub(crate) namespace: Option<u32>,
    pub(crate) hold: Duration,
    pub(crate) readonly: bool,
}

impl FarSpec {
    /// The files with the secrets by which the device is reached.
    pub(crate) fn secrets(&self) -> Vec<PathBuf> {
        let Url::Subsystem(subsystem) = &self.url else { return Vec::new() };
        subsystem.settings.secrets.paths().collect()
    }
}

impl FromStr for FarSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let spec = Self::of_any(text)?;
        if matches!(spec.url, Url::VfioUser(_)) {
            return Err(format!(
                "{} can't be a namespace; expected tcp://HOST:PORT, quic://HOST:PORT?key=FINGERPRINT, udp://HOST:PORT, eth:IFACE/MAC, shm:PATH or nvme-tcp://HOST:PORT/NQN",
                spec.url
            ));
        }
        Ok(spec)
    }
}

impl FarSpec {
    /// Whether `text` names a device by a URL, and no file.
    pub(crate) fn is_url(text: &str) -> bool {
        text.contains("://") || ["vfio-user:", "shm:", "eth:"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Parses the URL of a device of any kind, with its options.
    pub(crate) fn of_any(text: &str) -> Result<Self, String> {
        let (mut rest, mut namespace, mut hold, mut readonly) = (text, None, HOLD, false);
        let mut given = Vec::new();
        // Commas also separate the paths of an NVMe/TCP subsystem.
        while let Some((before, option)) = rest.rsplit_once(',') {
            match option.split_once('=') {
                Some(("nsid", id)) => {
                    let id = id.parse().ok().filter(|id| *id > 0);
                    namespace = Some(id.ok_or("nsid= wants a number from 1 on")?);
                }
                Some(("hold", time)) => hold = parse_time(time)?,
                None if option == "readonly" => readonly = true,
                _ => break,
            }
            note_once(&mut given, option)?;
            rest = before;
        }
        let url: Url = rest.parse()?;
        Ok(Self { text: text.to_owned(), url, namespace, hold, readonly })
    }
}

impl fmt::Display for FarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `--ram SIZE[,block=512|4096][,protection=16|64][,metadata=8|16]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RamSpec {
    pub(crate) size: u64,
    pub(crate) block: BlockSize,
}

impl FromStr for RamSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (size, mut format) = (parts.next().unwrap_or_default(), FormatSpec::default());
        let mut given = Vec::new();
        for part in parts {
            note_once(&mut given, part)?;
            if !format.take(part)? {
                return Err(format!("'{part}' is not one of: {FORMAT_WORDS}"));
            }
        }
        let (size, block) = (parse_size(size)?, format.block()?);
        check_ram(size, block)?;
        Ok(Self { size, block })
    }
}

impl fmt::Display for RamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.size, format_text(self.block))
    }
}

/// The storage of a namespace's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// A file, a block device, or a namespace of another device.
    Medium(MediumSpec),
    /// Memory of this process, which ends with it.
    Ram(RamSpec),
}

impl Backing {
    /// The backing that a request names by one of its two words.
    ///
    /// # Errors
    /// When it names none, or two, or a word is wrong.
    pub(crate) fn asked(namespace: Option<&str>, ram: Option<&str>) -> Result<Self, String> {
        match (namespace, ram) {
            (Some(text), None) => text.parse().map(Self::Medium),
            (None, Some(text)) => text.parse().map(Self::Ram),
            _ => Err("either namespace or ram is wanted".to_owned()),
        }
    }

    /// Notes that the data have this length now.
    pub(crate) fn set_size(&mut self, bytes: u64) {
        match self {
            Self::Medium(MediumSpec::File(spec)) => spec.size = Some(bytes),
            Self::Ram(spec) => spec.size = bytes,
            Self::Medium(MediumSpec::Far(_)) => {}
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium(spec) => spec.fmt(f),
            Self::Ram(spec) => write!(f, "memory of {spec}"),
        }
    }
}

/// `--pool PATH[,size=SIZE]`, or `--pool SIZE` for memory. The size is a whole number of 4 KiB
/// pages, from which namespaces are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolSpec {
    Ram { size: u64 },
    File { path: PathBuf, size: Option<u64> },
}

impl FromStr for PoolSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let in_memory = |size: u64| match size {
            0..=BYTES_MAX => Ok(size),
            _ => Err(format!("{size} bytes of memory; expected at most {BYTES_MAX}, or a file's path")),
        };
        let whole = |size: u64| match size > 0 && size.is_multiple_of(4096) {
            true => Ok(size),
            false => Err(format!("{size} bytes is not a positive multiple of 4096")),
        };
        let (path, options) = text.split_once(',').map_or((text, None), |(path, rest)| (path, Some(rest)));
        match (parse_size(path), options) {
            (Ok(size), None) => Ok(Self::Ram { size: in_memory(whole(size)?)? }),
            _ if path.is_empty() => Err("expected a size, or the path of a file".to_owned()),
            (_, None) => Ok(Self::File { path: path.into(), size: None }),
            (_, Some(option)) => match option.split_once('=') {
                Some(("size", size)) => {
                    Ok(Self::File { path: path.into(), size: Some(whole(parse_size(size)?)?) })
                }
                _ => Err(format!("'{option}' is not one of: size=SIZE")),
            },
        }
    }
}

impl Backing {
    /// Bytes of this machine's memory that hold the data.
    pub(crate) const fn memory(&self) -> u64 {
        match self {
            Self::Ram(spec) => spec.size,
            Self::Medium(_) => 0,
        }
    }
}

/// Fails if a namespace of blocks of `block` can't be made of `size` bytes of memory.
pub(crate) fn check_ram(size: u64, block: BlockSize) -> Result<(), String> {
    let (stored, data) = (u64::from(block.stored()), u64::from(block.bytes()));
    if size > BYTES_MAX {
        return Err(format!("{size} bytes of memory; expected at most {BYTES_MAX}"));
    }
    match block.has_metadata() {
        false if size > 0 && size.is_multiple_of(data) => Ok(()),
        false => Err(format!("{size} bytes is not a positive multiple of the block size, {data}")),
        true if size >= stored => Ok(()),
        true => {
            Err(format!("{size} bytes; a block with its metadata takes {stored} bytes, so that is the least"))
        }
    }
}

/// The words that [`FormatSpec`] knows, for messages.
const FORMAT_WORDS: &str = "block=512, block=4096, protection=16, protection=64, metadata=8, metadata=16";

/// The format of a namespace's blocks, as far as the option gives it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FormatSpec {
    /// Bytes of data in a block.
    pub(crate) block: Option<u32>,
    /// Bits of the guard that protects each block.
    pub(crate) protection: Option<u32>,
    /// Bytes of metadata that accompany each block, and mean nothing to the controller.
    pub(crate) metadata: Option<u32>,
}

impl FormatSpec {
    /// Takes `part` if it is one of [`FORMAT_WORDS`].
    fn take(&mut self, part: &str) -> Result<bool, String> {
        match part.split_once('=') {
            Some(("block", "4k" | "4KiB")) => self.block = Some(4096),
            Some(("block", text)) => {
                let wrong = || format!("a block of '{text}' bytes is not served; expected 512 or 4096");
                self.block = Some(text.parse().map_err(|_| wrong())?);
            }
            Some(("protection", text)) => {
                let wrong = || format!("protection of '{text}' bits does not exist; expected 16 or 64");
                self.protection = Some(text.parse().map_err(|_| wrong())?);
            }
            Some(("metadata", text)) => {
                let wrong = || format!("metadata of '{text}' bytes are not served; expected 8 or 16");
                self.metadata = Some(text.parse().map_err(|_| wrong())?);
            }
            _ => return Ok(false),
        }
        self.block().map(|_| true)
    }

    /// The format; 512 bytes without protection by default.
    pub(crate) fn block(self) -> Result<BlockSize, String> {
        match (self.metadata, self.protection, self.block) {
            (None, ..) => self.without_tags(),
            (_, Some(_), _) => {
                Err("protection brings metadata of its own; give metadata= or protection=".to_owned())
            }
            (_, _, Some(512)) => {
                Err("metadata are for blocks of 4096 bytes, not 512; leave block= out".to_owned())
            }
            (_, _, Some(_)) if self.without_tags().is_err() => self.without_tags(),
            (Some(8), ..) => Ok(BlockSize::Tagged8),
            (Some(16), ..) => Ok(BlockSize::Tagged16),
            (Some(bytes), ..) => Err(format!("metadata of '{bytes}' bytes are not served; expected 8 or 16")),
        }
    }

    /// The format, if it has no metadata but protection information.
    fn without_tags(self) -> Result<BlockSize, String> {
        match (self.block, self.protection) {
            (None | Some(512), None) => Ok(BlockSize::Bytes512),
            (Some(4096), None) => Ok(BlockSize::Bytes4096),
            (None | Some(4096), Some(16)) => Ok(BlockSize::Guarded16),
            (None | Some(4096), Some(64)) => Ok(BlockSize::Guarded64),
            (Some(512), Some(16 | 64)) => {
                Err("protection is for blocks of 4096 bytes, not 512; leave block= out".to_owned())
            }
            (_, Some(bits)) if !matches!(bits, 16 | 64) => {
                Err(format!("protection of '{bits}' bits does not exist; expected 16 or 64"))
            }
            (block, _) => {
                let block = block.unwrap_or_default();
                Err(format!("a block of '{block}' bytes is not served; expected 512 or 4096"))
            }
        }
    }
}

/// A format as [`NamespaceSpec`] and [`RamSpec`] read it.
const fn format_text(block: BlockSize) -> &'static str {
    match block {
        BlockSize::Bytes512 => "block=512",
        BlockSize::Bytes4096 => "block=4096",
        BlockSize::Guarded16 => "block=4096,protection=16",
        BlockSize::Guarded64 => "block=4096,protection=64",
        BlockSize::Tagged8 => "block=4096,metadata=8",
        BlockSize::Tagged16 => "block=4096,metadata=16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_its_options() {
        let spec: NamespaceSpec = "disk.img,size=1GiB,block=4096,readonly".parse().unwrap();
        assert_eq!((spec.size, spec.block, spec.readonly), (Some(1 << 30), BlockSize::Bytes4096, true));
        for block in BlockSize::ALL {
            let spec: NamespaceSpec = format!("disk.img,{}", format_text(block)).parse().unwrap();
            assert_eq!(spec.block, block);
            assert_eq!(spec.to_string().parse(), Ok(spec));
            let ram = RamSpec { size: 1 << 20, block };
            assert_eq!(ram.to_string().parse(), Ok(ram));
        }
        for text in ["disk.img,size=1GiB,readonly", "disk.img", "tcp://a:1,nsid=2,hold=3s,readonly"] {
            let spec: MediumSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
        let short: NamespaceSpec = "disk.img,protection=64".parse().unwrap();
        assert_eq!(short.block, BlockSize::Guarded64);
        for wrong in [
            "",
            "a,size=x",
            "a,block=1024",
            "a,colour=red",
            "a,protection=8",
            "a,protection=16,block=512",
            "a,metadata=9",
            "a,metadata=x",
            "a,metadata=8,block=512",
            "a,block=1k,metadata=8",
            "a,metadata=8,protection=16",
        ] {
            assert!(wrong.parse::<NamespaceSpec>().is_err(), "{wrong}");
        }
        assert_eq!("4k".parse(), Ok(RamSpec { size: 4096, block: BlockSize::Bytes512 }));
        assert_eq!("4k".parse(), Ok(PoolSpec::Ram { size: 4096 }));
        assert_eq!("./4k".parse(), Ok(PoolSpec::File { path: "./4k".into(), size: None }));
        let file = PoolSpec::File { path: "a".into(), size: Some(1 << 20) };
        assert_eq!("a,size=1MiB".parse(), Ok(file));
        for wrong in ["", ",size=4k", "a,size=1000", "a,readonly", "1000", "32TiB"] {
            assert!(wrong.parse::<PoolSpec>().is_err(), "{wrong}");
        }
        assert!("100".parse::<RamSpec>().is_err() && "32TiB".parse::<RamSpec>().is_err());
    }

    #[test]
    fn an_option_is_given_once() {
        for (twice, key) in [
            ("disk.img,size=4k,block=4k,size=8k", "size"),
            ("disk.img,block=512,block=4096", "block"),
            ("tcp://a:1,nsid=2,hold=3s,nsid=3", "nsid"),
            ("nvme-tcp://a,b/nqn.2014-08.org.example:x,hold=1s,hold=2s", "hold"),
        ] {
            let error = twice.parse::<MediumSpec>().unwrap_err();
            assert!(error.contains(&format!("{key} is given twice")), "{twice}: {error}");
        }
        let error = "1MiB,protection=16,protection=64".parse::<RamSpec>().unwrap_err();
        assert!(error.contains("protection is given twice"), "{error}");
    }

    #[test]
    fn a_namespace_of_another_device_names_its_options() {
        let MediumSpec::Far(far) = "tcp://a:1,nsid=2,hold=3s,readonly".parse().unwrap() else { panic!() };
        assert_eq!((far.namespace, far.hold, far.readonly), (Some(2), Duration::from_secs(3), true));
        assert_eq!(far.url.to_string(), "tcp://a:1");
        let text = "nvme-tcp://a:4420,b:4420/nqn.2014-08.org.example:x?hdgst=on";
        let MediumSpec::Far(far) = format!("{text},nsid=7").parse().unwrap() else { panic!() };
        assert_eq!((far.url.to_string(), far.namespace, far.hold), (text.to_owned(), Some(7), HOLD));
        for wrong in ["tcp://a", "tcp://a:1,nsid=0", "tcp://a:1,size=4k", "vfio-user:/run/x", "udp://a"] {
            assert!(wrong.parse::<MediumSpec>().is_err(), "{wrong}");
        }
    }
}
