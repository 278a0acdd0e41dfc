//! Pages name only commands and flags that the command line has.

use std::path::Path;
use std::process::Command;

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Cli;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A command of a page, without `podium`.
#[derive(Debug, PartialEq)]
struct Named {
    words: Vec<String>,
    /// Whether it stands in a text, which may leave out arguments.
    is_inline: bool,
}

fn pages() -> Vec<(String, String)> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]);
    let listed = git.current_dir(ROOT).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    // Decisions and changes describe earlier versions as well.
    let current = names.lines().filter(|name| !name.starts_with("docs/adr/") && *name != "CHANGELOG.md");
    let text = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).ok();
    current.filter_map(|name| Some((name.to_owned(), text(name)?))).collect()
}

/// The commands in blocks of shell commands, and in `code` outside of blocks.
fn commands(page: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let page = page.replace("\\\n", " ");
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(info), None) => fence = Some(info),
            (Some(_), Some(_)) => fence = None,
            (None, Some(info)) if info.starts_with("sh") => found.extend(command(line, false)),
            (None, Some(_)) => {}
            (None, None) => {
                found.extend(line.split('`').skip(1).step_by(2).filter_map(|code| command(code, true)));
            }
        }
    }
    found
}

fn command(line: &str, is_inline: bool) -> Option<Named> {
    let words = words(line, is_inline);
    let own = words.iter().position(|word| !word.contains('='))?;
    let rest = words.get(own..)?;
    (rest.first()? == "podium" && rest.len() > 1).then(|| Named { words: rest[1..].to_vec(), is_inline })
}

/// The words of a shell command up to a comment, a pipe or a redirection; of a command in a text, up to an ellipsis.
fn words(line: &str, is_inline: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let quoted = (first == '"' || first == '\'').then(|| rest[1..].split_once(first)).flatten();
        let (word, after) = quoted.unwrap_or_else(|| rest.split_once(' ').unwrap_or((rest, "")));
        let is_omission = is_inline && word.contains(['…', '[', '\\', '(']);
        if is_omission || (quoted.is_none() && word.starts_with(['#', '|', '>', '<', '&', ';'])) {
            break;
        }
        found.push(word.to_owned());
        rest = after.trim_start();
    }
    found
}

/// Why the command line refuses a command; `None` if it has it.
fn problem(named: &Named) -> Option<String> {
    let has_placeholder =
        named.words.iter().any(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
    let error = Cli::try_parse_from([&["podium".to_owned()], named.words.as_slice()].concat()).err()?;
    let is_fine = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => has_placeholder || named.is_inline,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => named.is_inline,
        _ => false,
    };
    (!is_fine).then(|| error.to_string())
}

#[test]
fn pages_name_only_commands_and_flags_that_exist() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, page) in pages() {
        for named in commands(&page) {
            count += 1;
            problems.extend(
                problem(&named).map(|why| format!("{name}: podium {}: {why}", named.words.join(" "))),
            );
        }
    }
    assert!(count > 100, "{count} commands");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let page = "Use `podium runs lost`, `podium runs show …` or `podium runs`.\n\n```sh run\n\
                KEY=1 podium key create --tenant acme \\\n    --budget 3 # no such flag\n\
                podium serve --keys-required > log\npodium bundle inspect\n```\n```toml\npodium = 1\n```\n";
    let found = commands(page);
    let refused: Vec<_> =
        found.iter().filter(|named| problem(named).is_some()).map(|named| named.words.join(" ")).collect();
    assert_eq!(found.len(), 6, "{found:?}");
    assert_eq!(refused, ["runs lost", "key create --tenant acme --budget 3", "bundle inspect"]);
}
