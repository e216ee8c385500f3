//! The files of kernel modules, and the order in which to insert them, from `modules.dep`.

use std::path::{Path, PathBuf};

use crate::Error;

/// The files to insert for the modules `names`, each once, dependencies first. `directory` holds
/// `modules.dep`. A module that is built into the kernel (`modules.builtin`) needs no file.
pub(crate) fn in_order(directory: &Path, names: &[String]) -> Result<Vec<PathBuf>, Error> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(Error::at("reading", &path))
    };
    let dependencies = read("modules.dep")?;
    let built_in = read("modules.builtin")?;
    let mut order: Vec<PathBuf> = Vec::new();
    for name in names {
        let Some(line) =
            dependencies.lines().find(|line| line.split(':').next().is_some_and(|p| is(p, name)))
        else {
            if built_in.lines().any(|path| is(path, name)) {
                continue;
            }
            return Err(Error::Missing {
                what: format!("kernel module {name}"),
                looked_in: directory.display().to_string(),
            });
        };
        // depmod writes the module, a colon, and the dependencies in reverse order of insertion.
        let (module, needs) = line.split_once(':').unwrap_or((line, ""));
        for path in needs.split_whitespace().rev().chain([module]) {
            let file = directory.join(path);
            if !order.contains(&file) {
                order.push(file);
            }
        }
    }
    Ok(order)
}

/// The name of a module: its file name without suffixes, with `_` for `-`.
pub(crate) fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn is(path: &str, name: &str) -> bool {
    name_of(path) == name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let dep = "kernel/net/virtio_net.ko.xz: kernel/net/net_failover.ko.xz kernel/core/failover.ko.xz\n\
            kernel/net/net_failover.ko.xz: kernel/core/failover.ko.xz\nkernel/core/failover.ko.xz:\n";
        std::fs::write(directory.path().join("modules.dep"), dep).unwrap();
        std::fs::write(directory.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        let names = ["net-failover", "virtio_net", "ext4"].map(str::to_owned);
        let order = in_order(directory.path(), &names).unwrap();
        let names: Vec<_> = order.iter().map(|path| name_of(&path.to_string_lossy())).collect();
        assert_eq!(names, ["failover", "net_failover", "virtio_net"]);
        let unknown = in_order(directory.path(), &["nothing".to_owned()]).unwrap_err();
        assert!(unknown.to_string().contains("kernel module nothing"), "{unknown}");
    }
}
