//! The page's assets, as files of the program.

/// A file of the page: its name, its type, and its bytes.
pub(super) struct Asset {
    name: &'static str,
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! asset {
    ($kind:expr, $name:literal) => {
        Asset {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/", $name)),
        }
    };
}

/// All of them. apps/farlane/ui/vendor/README.md says where those below vendor/ come from.
static ASSETS: &[Asset] = &[
    asset!(HTML, "index.html"),
    asset!(PICTURE, "icon.svg"),
    asset!(STYLE, "style.css"),
    asset!(SCRIPT, "app/main.js"),
    asset!(SCRIPT, "app/library.js"),
    asset!(SCRIPT, "app/api.js"),
    asset!(SCRIPT, "app/words.js"),
    asset!(SCRIPT, "app/parts.js"),
    asset!(SCRIPT, "app/chart.js"),
    asset!(SCRIPT, "app/overview.js"),
    asset!(SCRIPT, "app/commands.js"),
    asset!(SCRIPT, "app/command.js"),
    asset!(SCRIPT, "app/distributions.js"),
    asset!(SCRIPT, "app/time.js"),
    asset!(SCRIPT, "app/compare.js"),
    asset!(SCRIPT, "app/simulate.js"),
    asset!(SCRIPT, "app/live.js"),
    asset!(SCRIPT, "vendor/preact.js"),
    asset!(SCRIPT, "vendor/hooks.js"),
    asset!(SCRIPT, "vendor/htm.js"),
    asset!(SCRIPT, "vendor/uplot.js"),
    asset!(STYLE, "vendor/uplot.css"),
    // The terms of licences ask that the texts go with the code.
    asset!(TEXT, "vendor/preact.LICENSE"),
    asset!(TEXT, "vendor/htm.LICENSE"),
    asset!(TEXT, "vendor/uplot.LICENSE"),
];

/// The file called `name`; the page itself without a name.
pub(super) fn find(name: &str) -> Option<&'static Asset> {
    let name = if name.is_empty() { "index.html" } else { name };
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_page_is_there_and_none_is_forgotten() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let mut there = BTreeSet::new();
        for folder in ["", "app", "vendor"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                let is_note = name.ends_with(".md");
                if path.is_file() && !is_note {
                    there.insert(name);
                }
            }
        }
        let known: BTreeSet<_> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
        assert_eq!(known, there);
    }

    #[test]
    fn the_page_asks_no_other_server() {
        for asset in ASSETS.iter().filter(|asset| !asset.name.starts_with("vendor/")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            // The name of a language of pictures is no address that a browser requests.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{}", asset.name);
        }
    }
}
