//! Reads enough of a shell's language to find the commands in an example.

/// The commands in `line`, each as its words: quotes are resolved, a comment is left out, and what
/// `|`, `&`, `;` and redirections divide is apart.
pub(super) fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    for one in line.chars() {
        match (quote, one) {
            (Some(open), _) if one == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(one),
            (None, '\'' | '"') => {
                quote = Some(one);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | '&' | ';' | '>' | '<') => {
                commands.last_mut().unwrap().extend(word.take());
                commands.push(Vec::new());
            }
            (None, _) if one.is_whitespace() => commands.last_mut().unwrap().extend(word.take()),
            (None, _) => word.get_or_insert_default().push(one),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands.retain(|words| !words.is_empty());
    commands
}

/// The words of a command from `farlane` on, behind what runs it elsewhere or as another user; none
/// if it is another program.
pub(super) fn farlane(words: &[String]) -> Option<&[String]> {
    let (first, rest) = words.split_first()?;
    match first.as_str() {
        "farlane" => Some(words),
        "sudo" => match rest.first().map(String::as_str) {
            Some("-u") => farlane(rest.get(2..)?),
            _ => farlane(rest),
        },
        "ip" if rest.first().is_some_and(|it| it == "netns") => farlane(rest.get(3..)?),
        // A prompt, which may name the machine.
        prompt if prompt.ends_with('$') => farlane(rest),
        setting if setting.contains('=') => farlane(rest),
        _ => None,
    }
}

/// The commands of a text, with continued lines joined.
pub(super) fn of_text(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let commands: Vec<_> = joined.lines().flat_map(commands).collect();
    commands.iter().filter_map(|words| farlane(words)).map(<[String]>::to_vec).collect()
}

#[test]
fn words_are_those_of_a_shell() {
    let one = |line: &str| of_text(line).into_iter().map(|words| words.join("|")).collect::<Vec<_>>();
    assert_eq!(
        one("farlane measure ping 'tcp://a:1?key=b&c'  # why"),
        ["farlane|measure|ping|tcp://a:1?key=b&c"]
    );
    assert_eq!(one("umount /mnt && sudo -u x farlane observe list | cat"), ["farlane|observe|list"]);
    assert_eq!(
        one("far$ ip netns exec near farlane observe list &\nfarlane observe top"),
        ["farlane|observe|list", "farlane|observe|top"]
    );
    assert_eq!(one("farlane export \\\n  --ram 1MiB > log"), ["farlane|export|--ram|1MiB"]);
    assert_eq!(one("farlane: an event\ncargo bench -p farlane\nfarlane-guest"), [""; 0]);
}
