//! What namespaces are kept on, as the command line says it.

use std::path::PathBuf;
use std::str::FromStr;

use nvme::media::ram::BYTES_MAX;

use super::parse_size;

/// `--namespace PATH[,size=SIZE][,block=512|4096][,readonly]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceSpec {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) block: u32,
    pub(crate) readonly: bool,
}

impl FromStr for NamespaceSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let path = parts.next().filter(|path| !path.is_empty()).ok_or("the path is empty")?;
        let mut spec = Self { path: path.into(), size: None, block: 512, readonly: false };
        for part in parts {
            match part.split_once('=') {
                Some(("size", size)) => spec.size = Some(parse_size(size)?),
                Some(("block", block)) => spec.block = parse_block(block)?,
                None if part == "readonly" => spec.readonly = true,
                _ => {
                    return Err(format!(
                        "'{part}' is not one of: size=SIZE, block=512, block=4096, readonly"
                    ));
                }
            }
        }
        Ok(spec)
    }
}

/// `--ram SIZE[,block=512|4096]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RamSpec {
    pub(crate) size: u64,
    pub(crate) block: u32,
}

impl FromStr for RamSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (size, block) = match text.split_once(',') {
            None => (text, 512),
            Some((size, option)) => match option.split_once('=') {
                Some(("block", block)) => (size, parse_block(block)?),
                _ => return Err(format!("'{option}' is not one of: block=512, block=4096")),
            },
        };
        let size = parse_size(size)?;
        match size > 0 && size.is_multiple_of(u64::from(block)) {
            true if size > BYTES_MAX => Err(format!("{size} bytes of memory; expected at most {BYTES_MAX}")),
            true => Ok(Self { size, block }),
            false => Err(format!("{size} bytes is not a positive multiple of the block size, {block}")),
        }
    }
}

/// `--pool PATH[,size=SIZE]`, or `--pool SIZE` for memory: whole pages, of which namespaces are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolSpec {
    Ram { size: u64 },
    File { path: PathBuf, size: Option<u64> },
}

impl FromStr for PoolSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let whole = |size: u64| match size > 0 && size.is_multiple_of(4096) {
            true => Ok(size),
            false => Err(format!("{size} bytes is not a positive multiple of 4096")),
        };
        let (path, options) = text.split_once(',').map_or((text, None), |(path, rest)| (path, Some(rest)));
        match (parse_size(path), options) {
            (Ok(size), None) => Ok(Self::Ram { size: whole(size)? }),
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

fn parse_block(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4k" | "4KiB" => Ok(4096),
        _ => Err(format!("a block of '{text}' bytes is not served; expected 512 or 4096")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_its_options() {
        let spec: NamespaceSpec = "disk.img,size=1GiB,block=4096,readonly".parse().unwrap();
        assert_eq!((spec.size, spec.block, spec.readonly), (Some(1 << 30), 4096, true));
        for wrong in ["", "a,size=x", "a,block=1024", "a,colour=red"] {
            assert!(wrong.parse::<NamespaceSpec>().is_err(), "{wrong}");
        }
        assert_eq!("4k".parse(), Ok(RamSpec { size: 4096, block: 512 }));
        assert_eq!("4k".parse(), Ok(PoolSpec::Ram { size: 4096 }));
        assert_eq!("./4k".parse(), Ok(PoolSpec::File { path: "./4k".into(), size: None }));
        let file = PoolSpec::File { path: "a".into(), size: Some(1 << 20) };
        assert_eq!("a,size=1MiB".parse(), Ok(file));
        for wrong in ["", ",size=4k", "a,size=1000", "a,readonly", "1000"] {
            assert!(wrong.parse::<PoolSpec>().is_err(), "{wrong}");
        }
        assert!("100".parse::<RamSpec>().is_err() && "32TiB".parse::<RamSpec>().is_err());
    }
}
