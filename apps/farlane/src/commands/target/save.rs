//! A target's offer in its file: `[[subsystem.namespace]]` and `[[subsystem.ana]]`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nvme::subsystem::BlockSize;
use nvme::wire::Guard;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, TableLike, Value, value};

use super::config::{Listed, listed_in};
use crate::args::{Backing, MediumSpec, SaveArgs};
use crate::commands::save::offer::{Access, OfferedNamespace, Subsystems};
use crate::commands::save::{File, wrong};
use crate::error::Error;

/// Writes a target's offer into its file.
///
/// # Errors
/// When there is no file, it can't be written, or it can't describe the offer.
pub(super) fn save(args: &SaveArgs, offered: &Subsystems) -> Result<(), Error> {
    let mut file = File::read(offered.config.as_ref())?;
    change(&file.before, &mut file.document, offered).map_err(|why| wrong(&file.path, &why))?;
    file.write(args, &[])
}

/// Makes the document, whose text is given, offer the same as the target.
fn change(text: &str, document: &mut DocumentMut, offered: &Subsystems) -> Result<(), String> {
    let text = change_subsystems(text, document, offered)?;
    let known = listed_in(&text)?;
    let item = document.get_mut("subsystem");
    let mut tables: Vec<&mut dyn TableLike> = match item {
        Some(Item::ArrayOfTables(several)) => {
            several.iter_mut().map(|one| one as &mut dyn TableLike).collect()
        }
        Some(Item::Value(Value::Array(several))) => several
            .iter_mut()
            .filter_map(|one| one.as_inline_table_mut().map(|one| one as &mut dyn TableLike))
            .collect(),
        _ => Vec::new(),
    };
    for (table, (nqn, listed)) in tables.iter_mut().zip(known) {
        // A subsystem that was added to the file since is no change at run time.
        let Some(now) = offered.subsystems.iter().find(|one| one.nqn == nqn) else { continue };
        change_namespaces(*table, &listed, &now.namespaces)?;
        change_access(*table, &now.ana)?;
    }
    Ok(())
}

/// Adds the subsystems that were put at run time, in the places of those with their names, and
/// takes away those that were dropped. Returns the document's text.
fn change_subsystems<'a>(
    text: &'a str,
    document: &mut DocumentMut,
    offered: &Subsystems,
) -> Result<Cow<'a, str>, String> {
    let texts = offered.subsystems.iter().filter_map(|one| Some((one.nqn.as_str(), one.text.as_deref()?)));
    let texts: BTreeMap<&str, &str> = texts.collect();
    if texts.is_empty() && offered.dropped.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let mut tables = take(document.as_table_mut(), "subsystem")?;
    let name_of = |table: &Table| table.get("nqn").and_then(Item::as_str).map(str::to_owned);
    let is_dropped = |name: &String| offered.dropped.contains(name);
    tables.retain(|table| !name_of(table).as_ref().is_some_and(is_dropped));
    let places = tables.iter().enumerate().filter_map(|(place, table)| Some((name_of(table)?, place)));
    let places: BTreeMap<String, usize> = places.collect();
    for (nqn, text) in texts {
        let mut source: DocumentMut = text.parse().map_err(|error| format!("{nqn}: {error}"))?;
        let given = take(source.as_table_mut(), "subsystem")?;
        let found = given.iter().find(|table| name_of(table).as_deref() == Some(nqn));
        let mut table = found.ok_or_else(|| format!("{nqn} was put by a text without it"))?.clone();
        forget_position(&mut table);
        match places.get(nqn).and_then(|place| tables.get_mut(*place)) {
            Some(before) if before.to_string() == table.to_string() => {}
            Some(before) => *before = table,
            None => tables.push(table),
        }
    }
    put(document.as_table_mut(), "subsystem", tables);
    Ok(Cow::Owned(document.to_string()))
}

/// Has a table and those in it stand where the table is put, not where it stood in its own text.
fn forget_position(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(inner) => forget_position(inner),
            Item::ArrayOfTables(several) => several.iter_mut().for_each(forget_position),
            Item::None | Item::Value(_) => {}
        }
    }
}

fn change_namespaces(
    table: &mut dyn TableLike,
    listed: &[Listed],
    offered: &[OfferedNamespace],
) -> Result<(), String> {
    let mut wanted = Vec::new();
    for one in offered {
        let ana_group = one.ana_group.unwrap_or(1);
        wanted.push(Listed { id: one.nsid, ana_group, backing: one.backing()? });
    }
    if wanted == *listed {
        return Ok(());
    }
    let mut tables = take(table, "namespace")?;
    let mut ids: Vec<_> = listed.iter().map(|before| before.id).collect();
    for (place, before) in listed.iter().enumerate().rev() {
        match (wanted.iter().find(|now| now.id == before.id), tables.get_mut(place)) {
            (Some(now), Some(one)) if now != before => write(one, now),
            (Some(_), _) => {}
            (None, _) => {
                tables.remove(place);
                ids.remove(place);
            }
        }
    }
    for added in wanted.iter().filter(|now| !ids.contains(&now.id)).collect::<Vec<_>>() {
        let mut one = Table::new();
        write(&mut one, added);
        tables.push(one);
        ids.push(added.id);
    }
    // A namespace without an identifier has the one after the highest before it.
    let mut next = 1;
    for (one, id) in tables.iter_mut().zip(ids) {
        if id != next && !one.contains_key("id") {
            one["id"] = value(i64::from(id));
        }
        next = next.max(id + 1);
    }
    put(table, "namespace", tables);
    Ok(())
}

/// Writes the keys of a namespace that differ from those of the table.
fn write(table: &mut Table, now: &Listed) {
    let size = |bytes: u64| value(bytes.to_string());
    match &now.backing {
        Backing::Medium(MediumSpec::File(spec)) => {
            set(table, "path", Some(value(spec.path.to_string_lossy().into_owned())));
            set(table, "size", spec.size.map(size));
            set(table, "readonly", spec.readonly.then(|| value(true)));
            set_format(table, spec.block);
            ["ram", "url"].iter().for_each(|key| drop(table.remove(key)));
        }
        Backing::Ram(spec) => {
            set(table, "ram", Some(size(spec.size)));
            set_format(table, spec.block);
            ["path", "size", "readonly", "url"].iter().for_each(|key| drop(table.remove(key)));
        }
        Backing::Medium(MediumSpec::Far(spec)) => {
            set(table, "url", Some(value(spec.to_string())));
            let others = ["path", "size", "readonly", "block", "protection", "metadata", "ram"];
            others.iter().for_each(|key| drop(table.remove(key)));
        }
    }
    set(table, "ana-group", (now.ana_group != 1).then(|| value(i64::from(now.ana_group))));
}

fn set_format(table: &mut Table, block: BlockSize) {
    let guard = block.guard().map(|guard| match guard {
        Guard::Bits16 => 16,
        Guard::Bits64 => 64,
    });
    let metadata = guard.is_none().then(|| i64::from(block.metadata())).filter(|bytes| *bytes > 0);
    let is_said = block.bytes() != BlockSize::default().bytes() && !block.has_metadata();
    set(table, "block", is_said.then(|| value(i64::from(block.bytes()))));
    set(table, "protection", guard.map(value));
    set(table, "metadata", metadata.map(value));
}

/// Gives a key this value, or takes the key away. Comments beside a value that is replaced stay.
fn set(table: &mut Table, key: &str, wanted: Option<Item>) {
    let Some(mut wanted) = wanted else {
        table.remove(key);
        return;
    };
    let decor = table.get(key).and_then(Item::as_value).map(|before| before.decor().clone());
    if let (Some(decor), Some(wanted)) = (decor, wanted.as_value_mut()) {
        *wanted.decor_mut() = decor;
    }
    table[key] = wanted;
}

fn change_access(table: &mut dyn TableLike, wanted: &[Access]) -> Result<(), String> {
    let mut tables = take(table, "ana")?;
    let read = |one: &Table| -> Option<Access> {
        let group = one.get("group").map_or(Some(1), Item::as_integer)?;
        let port = one.get("port").map(|port| port.as_str()?.parse().ok());
        let state = serde_json::from_value(one.get("state")?.as_str()?.into()).ok()?;
        Some(Access {
            group: u32::try_from(group).ok()?,
            port: port.map_or(Some(None), |it| it.map(Some))?,
            state,
        })
    };
    let known: Vec<_> = tables.iter().map(read).collect();
    if known.iter().flatten().eq(wanted) {
        put(table, "ana", tables);
        return Ok(());
    }
    for place in (0..known.len()).rev() {
        if !known[place].as_ref().is_some_and(|one| wanted.contains(one)) {
            tables.remove(place);
        }
    }
    for access in wanted.iter().filter(|one| !known.iter().flatten().any(|before| before == *one)) {
        let mut one = Table::new();
        one["group"] = value(i64::from(access.group));
        if let Some(port) = access.port {
            one["port"] = value(port.to_string());
        }
        let state = serde_json::to_value(access.state).unwrap_or_default();
        one["state"] = value(state.as_str().unwrap_or_default());
        tables.push(one);
    }
    put(table, "ana", tables);
    Ok(())
}

/// Takes the tables of a key out of their table.
fn take(table: &mut dyn TableLike, key: &str) -> Result<ArrayOfTables, String> {
    match table.remove(key) {
        None => Ok(ArrayOfTables::new()),
        Some(item) => item.into_array_of_tables().map_err(|_| format!("{key}: expected [[subsystem.{key}]]")),
    }
}

fn put(table: &mut dyn TableLike, key: &str, tables: ArrayOfTables) {
    if !tables.is_empty() {
        table.insert(key, Item::ArrayOfTables(tables));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# what we offer
[[port]]
listen = "127.0.0.1:4420"

[[subsystem]] # the first
nqn = "nqn.2026-01.io.farlane:one"

# the disk
[[subsystem.namespace]]
path = "disk.img"
size = "10GiB" # large

[[subsystem.namespace]]
ram = "1MiB"

[[subsystem.namespace]]
ram = "2MiB"
ana-group = 2 # slow

[[subsystem.ana]]
group = 2
state = "non-optimized" # far

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:two"
"#;

    fn offered(namespaces: &str, ana: &str) -> Subsystems {
        let of = |nqn: &str, namespaces: &str, ana: &str| {
            format!(r#"{{"nqn":"nqn.2026-01.io.farlane:{nqn}","namespaces":[{namespaces}],"ana":[{ana}]}}"#)
        };
        let two = of("two", r#"{"nsid":5,"ram":"4096"}"#, "");
        serde_json::from_str(&format!(r#"{{"subsystems":[{},{two}]}}"#, of("one", namespaces, ana))).unwrap()
    }

    fn changed(text: &str, offered: &Subsystems) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        change(text, &mut document, offered).unwrap();
        document.to_string()
    }

    #[test]
    fn what_stays_keeps_its_text_and_comments_and_what_was_changed_is_written() {
        let slow = r#"{"group":2,"port":null,"state":"non-optimized"}"#;
        let disk = r#"{"nsid":1,"namespace":"disk.img,size=10737418240","ana_group":1}"#;
        let memory = r#"{"nsid":2,"ram":"1MiB"},{"nsid":3,"ram":"2MiB","ana_group":2}"#;
        let added = "\n[[subsystem.namespace]]\nid = 5\nram = \"4096\"\n";
        let same = changed(TEXT, &offered(&format!("{disk},{memory}"), slow));
        // The second subsystem has a namespace that was added.
        assert_eq!(
            same.replace("ram = \"4096\"\nid = 5", "id = 5\nram = \"4096\""),
            format!("{TEXT}{added}")
        );
        let grown = r#"{"nsid":1,"namespace":"disk.img,size=20GiB"},{"nsid":3,"ram":"2MiB","ana_group":2}"#;
        let new = r#"{"nsid":2,"namespace":"/srv/new.img,block=4096,readonly"}"#;
        let port = r#"{"group":1,"port":"127.0.0.1:4420","state":"inaccessible"}"#;
        let now = changed(TEXT, &offered(&format!("{grown},{new}"), &format!("{slow},{port}")));
        for kept in ["# what we offer", "# the first", "# the disk", "# large", "# slow", "# far"] {
            assert!(now.contains(kept), "{kept}: {now}");
        }
        assert!(now.contains("size = \"21474836480\" # large"), "{now}");
        let listed = listed_in(&now).unwrap();
        let of_first: Vec<_> = listed[0].1.iter().map(|one| one.id).collect();
        assert_eq!(of_first, [1, 2, 3], "{now}");
        let again = offered(&format!("{grown},{new}"), &format!("{slow},{port}"));
        assert_eq!(changed(&now, &again), now, "what is saved twice is saved");
    }

    #[test]
    fn a_subsystem_that_was_put_stands_in_the_file_and_one_that_was_dropped_does_not() {
        let text = "[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:new\"\nserial = \"NEW\"\n\
                    [[subsystem.namespace]]\nram = \"1MiB\"\n[[subsystem.namespace]]\nram = \"2MiB\"\n\
                    [[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:one\"\nserial = \"ONE\"\n\
                    [[subsystem.namespace]]\nram = \"3MiB\"\n";
        let of = |nqn: &str, namespaces: &str| {
            format!(
                r#"{{"nqn":"nqn.2026-01.io.farlane:{nqn}","namespaces":[{namespaces}],"ana":[],"text":{}}}"#,
                serde_json::to_string(text).unwrap()
            )
        };
        let offered: Subsystems = serde_json::from_str(&format!(
            r#"{{"dropped":["nqn.2026-01.io.farlane:two"],"subsystems":[{},{}]}}"#,
            of("new", r#"{"nsid":1,"ram":"1MiB"},{"nsid":2,"ram":"4MiB"}"#),
            of("one", r#"{"nsid":1,"ram":"3MiB"}"#),
        ))
        .unwrap();
        let now = changed(TEXT, &offered);
        let names = |text: &str| listed_in(text).unwrap().into_iter().map(|(nqn, _)| nqn).collect::<Vec<_>>();
        assert_eq!(names(TEXT), ["one", "two"].map(|name| format!("nqn.2026-01.io.farlane:{name}")));
        assert_eq!(names(&now), ["one", "new"].map(|name| format!("nqn.2026-01.io.farlane:{name}")), "{now}");
        assert!(now.starts_with("# what we offer\n[[port]]\nlisten"), "{now}");
        for kept in ["serial = \"ONE\"", "serial = \"NEW\"", "\"3MiB\"", "\"4194304\""] {
            assert!(now.contains(kept), "{kept}: {now}");
        }
        assert!(!now.contains("disk.img") && !now.contains("non-optimized"), "{now}");
        assert_eq!(changed(&now, &offered), now, "what is saved twice is saved");
    }
}
