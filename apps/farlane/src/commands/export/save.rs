//! The options of far ends in a file: `namespace` and `ram` of `[export]`, or of each `[[export]]`.

use toml_edit::{Array, DocumentMut, Item, TableLike, Value};

use crate::args::{Backing, MediumSpec, SaveArgs};
use crate::commands::save::offer::{Exported, FarEnd, OfferedNamespace};
use crate::commands::save::{File, wrong};
use crate::commands::served::changes::resized;
use crate::error::Error;

/// Writes the offer of far ends into their file.
///
/// # Errors
/// When there is no file, it can't be written, or it can't describe the offer.
pub(super) fn save(args: &SaveArgs, offered: &Exported) -> Result<(), Error> {
    let mut file = File::read(offered.config.as_ref())?;
    if offered.is_given_beside {
        let why = "the command line offers namespaces beside this file: put them into the file";
        return Err(wrong(&file.path, why));
    }
    let notes = change(&mut file.document, &offered.far_ends).map_err(|why| wrong(&file.path, &why))?;
    file.write(args, &notes)
}

/// Makes the document offer the same as the far ends. Returns notes for the user.
fn change(document: &mut DocumentMut, far_ends: &[FarEnd]) -> Result<Vec<String>, String> {
    let item = document.get_mut("export").ok_or("there is no table [export]")?;
    let mut tables: Vec<&mut dyn TableLike> = match item {
        Item::ArrayOfTables(several) => several.iter_mut().map(|one| one as &mut dyn TableLike).collect(),
        Item::Value(Value::Array(several)) => several
            .iter_mut()
            .filter_map(|one| one.as_inline_table_mut().map(|one| one as &mut dyn TableLike))
            .collect(),
        one => one.as_table_like_mut().into_iter().collect(),
    };
    if tables.len() != far_ends.len() {
        return Err(format!(
            "there are {} far ends, and {} tables: write [[export]] once for each far end",
            far_ends.len(),
            tables.len()
        ));
    }
    let mut notes = Vec::new();
    for (table, far_end) in tables.iter_mut().zip(far_ends) {
        let backings =
            far_end.namespaces.iter().map(OfferedNamespace::backing).collect::<Result<Vec<_>, _>>()?;
        let [media, memory] = [true, false].map(|is_medium| {
            let of_kind = |one: &&Backing| matches!(one, Backing::Medium(_)) == is_medium;
            backings.iter().filter(of_kind).cloned().collect::<Vec<_>>()
        });
        let order = [
            set(*table, "namespace", |text| text.parse().map(Backing::Medium), media)?,
            set(*table, "ram", |text| text.parse().map(Backing::Ram), memory)?,
        ]
        .concat();
        if !far_end.keeps_state {
            notes.extend(renumbered(&order, &far_end.namespaces)?);
        }
    }
    Ok(notes)
}

/// A line for each namespace that has another identifier at the next start, in which they are
/// numbered in this order.
fn renumbered(order: &[Backing], offered: &[OfferedNamespace]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let mut rest: Vec<_> = offered.iter().collect();
    for (next, backing) in (1..).zip(order) {
        let mut found = None;
        for (place, one) in rest.iter().enumerate() {
            if one.backing()? == *backing {
                found = Some(place);
                break;
            }
        }
        let Some(now) = found.map(|place| rest.remove(place).nsid).filter(|now| *now != next) else {
            continue;
        };
        lines.push(format!("namespace {now} is {next} at the next start: --state keeps identifiers"));
    }
    Ok(lines)
}

/// Makes an option that may be given several times name the `wanted` backings. A backing that the
/// option names already keeps its text and place. Returns the backings that it names now, in order.
fn set(
    table: &mut dyn TableLike,
    key: &str,
    parse: impl Fn(&str) -> Result<Backing, String>,
    wanted: Vec<Backing>,
) -> Result<Vec<Backing>, String> {
    let mut array = match table.get(key) {
        None => Array::new(),
        Some(Item::Value(Value::Array(several))) => several.clone(),
        Some(Item::Value(one)) => Array::from_iter([one.clone().decorated("", "")]),
        Some(_) => return Err(format!("{key}: expected text, or a list of texts")),
    };
    let was_one = table.get(key).is_some_and(|item| !item.is_array());
    let mut wanted: Vec<_> = wanted.into_iter().map(Some).collect();
    let mut named = Vec::new();
    for value in array.iter() {
        let text = value.as_str().map_or_else(|| value.to_string().trim().to_owned(), str::to_owned);
        named.push(parse(&text).map_err(|why| format!("{key}: {why}"))?);
    }
    // Unchanged backings first: of two that differ in their size, the other one was resized.
    let mut kept: Vec<Option<Backing>> = named.iter().map(|_| None).collect();
    for (before, kept) in named.iter().zip(&mut kept) {
        *kept = wanted.iter_mut().find(|one| one.as_ref() == Some(before)).and_then(Option::take);
    }
    for (place, before) in
        named.iter().enumerate().filter(|(place, _)| kept[*place].is_none()).collect::<Vec<_>>()
    {
        let is_it =
            |one: &&mut Option<Backing>| one.as_ref().is_some_and(|now| resized(before, now).is_some());
        let Some(now) = wanted.iter_mut().find(is_it).and_then(Option::take) else { continue };
        array.replace(place, option(&now));
        kept[place] = Some(now);
    }
    for place in (0..kept.len()).rev().filter(|place| kept[*place].is_none()) {
        take_out(&mut array, place);
    }
    let mut now: Vec<_> = kept.into_iter().flatten().collect();
    for added in wanted.into_iter().flatten() {
        push(&mut array, option(&added));
        now.push(added);
    }
    if now != named {
        match (now.len(), was_one, array.get(0).cloned()) {
            (0, ..) => drop(table.remove(key)),
            (1, true, Some(one)) => replace(table, key, one),
            _ => replace(table, key, Value::Array(array)),
        }
    }
    Ok(now)
}

/// Gives a key another value. Comments around the former one stay.
fn replace(table: &mut dyn TableLike, key: &str, value: Value) {
    let decor = table.get(key).and_then(Item::as_value).map(|before| before.decor().clone());
    let mut value = value;
    if let Some(decor) = decor {
        *value.decor_mut() = decor;
    }
    table.insert(key, Item::Value(value));
}

/// Takes a value out of a list, with the comments above it and behind it. A comment that stands
/// behind the value before, past the comma, is the beginning of the next value.
fn take_out(array: &mut Array, place: usize) {
    let lead = |text: &str| text.find('\n').map_or("", |end| &text[..end]).to_owned();
    let rest = |text: &str| text.find('\n').map_or(text, |end| &text[end..]).to_owned();
    let before = array.remove(place).decor().prefix().and_then(|raw| raw.as_str()).map(lead);
    let Some(before) = before.filter(|text| text.contains('#')) else { return };
    match array.get_mut(place) {
        Some(next) => {
            let own = next.decor().prefix().and_then(|raw| raw.as_str()).map(rest).unwrap_or_default();
            next.decor_mut().set_prefix(before + &own);
        }
        None => {
            let own = array.trailing().as_str().map(rest).unwrap_or_default();
            array.set_trailing(before + &own);
        }
    }
}

/// Adds a value to a list, on a line of its own where the others are.
fn push(array: &mut Array, value: String) {
    let prefix = array.iter().last().and_then(|last| last.decor().prefix()?.as_str().map(str::to_owned));
    let line = prefix.and_then(|prefix| Some(prefix[prefix.rfind('\n')?..].to_owned()));
    let Some(line) = line else { return array.push(value) };
    // The comment behind the last value stays there.
    let trailing = array.trailing().as_str().unwrap_or_default();
    let (behind, rest) = trailing.split_at(trailing.find('\n').unwrap_or(0));
    let (prefix, rest) = (behind.to_owned() + &line, rest.to_owned());
    array.set_trailing(rest);
    array.push_formatted(Value::from(value).decorated(prefix, ""));
}

/// A namespace as an option names it, without default values.
fn option(backing: &Backing) -> String {
    let text = match backing {
        Backing::Medium(MediumSpec::File(spec)) => spec.to_string(),
        Backing::Medium(MediumSpec::Far(spec)) => return spec.to_string(),
        Backing::Ram(spec) => spec.to_string(),
    };
    text.replace(",block=512", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far_end(keeps_state: bool, namespaces: &[(u32, &str)]) -> FarEnd {
        let offered = |(nsid, text): &(u32, &str)| match text.strip_prefix("ram ") {
            Some(ram) => {
                OfferedNamespace { nsid: *nsid, namespace: None, ram: Some(ram.to_owned()), ana_group: None }
            }
            None => OfferedNamespace {
                nsid: *nsid,
                namespace: Some((*text).to_owned()),
                ram: None,
                ana_group: None,
            },
        };
        FarEnd { keeps_state, namespaces: namespaces.iter().map(offered).collect() }
    }

    fn changed(text: &str, far_ends: &[FarEnd]) -> Result<(String, Vec<String>), String> {
        let mut document: DocumentMut = text.parse().unwrap();
        let notes = change(&mut document, far_ends)?;
        Ok((document.to_string(), notes))
    }

    #[test]
    fn what_stays_keeps_its_text_and_its_comments() {
        let text = "# ours\n[export] # the box\nlisten = \"127.0.0.1:1\" # here\nnamespace = [\n  \
            # the first\n  \"a.img,size=1GiB\", # one\n  \"b.img,size=2GiB\",\n]\nram = 1048576\n";
        let same = [(1, "a.img,size=1073741824,block=512"), (2, "b.img,size=2147483648"), (3, "ram 1MiB")];
        assert_eq!(changed(text, &[far_end(false, &same)]), Ok((text.to_owned(), Vec::new())));
        let other = [(1, "a.img,size=1GiB"), (2, "b.img,size=3GiB"), (4, "/srv/c.img,block=4096,readonly")];
        let (now, notes) = changed(text, &[far_end(false, &other)]).unwrap();
        let expected = "# ours\n[export] # the box\nlisten = \"127.0.0.1:1\" # here\nnamespace = [\n  \
            # the first\n  \"a.img,size=1GiB\", # one\n  \"b.img,size=3221225472\",\n  \
            \"/srv/c.img,block=4096,readonly\",\n]\n";
        assert_eq!(now, expected);
        assert_eq!(notes, ["namespace 4 is 3 at the next start: --state keeps identifiers"]);
        assert_eq!(changed(text, &[far_end(true, &other)]), Ok((expected.to_owned(), Vec::new())));
    }

    #[test]
    fn a_comment_goes_with_its_value() {
        let text =
            "[export]\nnamespace = [\n  \"a\", # of a\n  # above b\n  \"b\", # of b\n  \"c\", # of c\n]\n";
        let without_b = "[export]\nnamespace = [\n  \"a\", # of a\n  \"c\", # of c\n]\n";
        assert_eq!(changed(text, &[far_end(true, &[(1, "a"), (3, "c")])]).unwrap().0, without_b);
        let only_a = "[export]\nnamespace = [\n  \"a\", # of a\n]\n";
        assert_eq!(changed(text, &[far_end(true, &[(1, "a")])]).unwrap().0, only_a);
        let with_d = "[export]\nnamespace = [\n  \"a\", # of a\n  \"d\",\n]\n";
        assert_eq!(changed(only_a, &[far_end(true, &[(1, "a"), (2, "d")])]).unwrap().0, with_d);
    }

    #[test]
    fn an_option_that_was_given_once_stays_so_while_it_can() {
        let text = "[[export]]\nram = \"1MiB\" # small\n\n[[export]]\nnamespace = \"a\"\n";
        let grown = [far_end(false, &[(1, "ram 2MiB")]), far_end(false, &[(1, "a"), (2, "b")])];
        let (now, _) = changed(text, &grown).unwrap();
        let expected = "[[export]]\nram = \"2097152\" # small\n\n[[export]]\nnamespace = [\"a\", \"b\"]\n";
        assert_eq!(now, expected);
        let error = changed(text, &grown[..1]).unwrap_err();
        assert!(error.contains("once for each far end"), "{error}");
        assert!(changed("[export]\nram = [{ a = 1 }]\n", &grown[..1]).is_err());
    }

    #[test]
    fn whatever_is_changed_reads_back_as_what_is_offered() {
        let all = ["a,size=1MiB", "b", "c,size=2MiB,block=4096", "tcp://h:1,nsid=2", "ram 1MiB", "ram 2MiB"];
        let starts =
            ["namespace = [\"b\", \"a\"]\n", "namespace = \"a,size=4MiB\"\nram = [\"1MiB\"]\n", "pool = 1\n"];
        for start in starts {
            for chosen in 0..1_u32 << all.len() {
                let picked: Vec<_> = (0..all.len()).filter(|bit| chosen >> bit & 1 == 1).collect();
                let offered: Vec<_> = (1..).zip(picked.iter().map(|bit| all[*bit])).collect();
                let text = format!("[export]\n{start}");
                let (now, _) = changed(&text, &[far_end(true, &offered)]).unwrap();
                // A second save changes nothing.
                assert_eq!(changed(&now, &[far_end(true, &offered)]).unwrap().0, now, "{start} {offered:?}");
            }
        }
    }
}
