//! Checks the shell commands of pages: each block says whether a test runs it, and its make targets and scripts exist.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "page-commands";
const SHELLS: &[&str] = &["sh", "bash", "shell", "console"];

/// A fenced block of shell commands.
struct Block<'t> {
    /// The line of its opening fence, counted from one.
    line: usize,
    info: &'t str,
    /// Its lines with their numbers.
    lines: Vec<(usize, &'t str)>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let targets = targets(tree.text("Makefile").unwrap_or_default());
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["md"]) {
        for block in shell_blocks(text) {
            if !matches!(block.info, "sh run" | "sh not-run") {
                let message = format!(
                    "a block of commands begins with ```sh run if a test runs it, or with ```sh not-run (it begins with ```{})",
                    block.info
                );
                findings.push(Finding::broken(RULE, path, message).at_line(block.line));
            }
            for (number, line) in block.lines {
                let problem = unknown_target(line, &targets).or_else(|| unknown_script(line, tree));
                findings.extend(problem.map(|message| Finding::broken(RULE, path, message).at_line(number)));
            }
        }
    }
    findings
}

fn shell_blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                open = Some(Block { line: index + 1, info: info.trim(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push((index + 1, line.trim())),
            (None, None) => {}
        }
    }
    blocks.retain(|block| SHELLS.contains(&block.info.split(' ').next().unwrap_or_default()));
    blocks
}

fn targets(makefile: &str) -> Vec<&str> {
    let rules = makefile.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']));
    rules.filter_map(|line| line.split_once(':')).map(|(target, _)| target.trim()).collect()
}

fn unknown_target(line: &str, targets: &[&str]) -> Option<String> {
    let target = line.strip_prefix("make ")?.split_whitespace().next()?;
    (!targets.contains(&target)).then(|| format!("the Makefile has no target `{target}`"))
}

/// A program of the repository that a line runs, if it does not exist.
fn unknown_script(line: &str, tree: &Tree) -> Option<String> {
    let program = line.split_whitespace().find(|word| !is_assignment(word))?;
    let is_script = program.contains('/') && !program.starts_with(['/', '~', '"', '\'', '$', '-', '#', '<']);
    let path = program.trim_start_matches("./");
    (is_script && !tree.exists(path)).then(|| format!("the program `{program}` does not exist"))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let tree = Tree::of([
            ("docs/a.md", page),
            ("Makefile", ".PHONY: demo\ndemo: build ## ask\n\t@scripts/x\n"),
            ("scripts/release", ""),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn commands_that_say_whether_a_test_runs_them_pass() {
        let page = "```sh run\nmake demo    # asks\nKEY=a/b scripts/release out\n```\n\n1. Text:\n\n   ```sh not-run\n   /usr/bin/x y\n   $HOME/x\n   ```\n\
                    ```toml\nmake = 1\n```\n```\nmake nothing\n```\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }

    #[test]
    fn a_block_without_a_mark_is_reported() {
        for info in ["sh", "bash run", "sh maybe"] {
            let found = findings(&format!("Text\n```{info}\nmake demo\n```\n"));
            assert_eq!(found.len(), 1, "{info}: {found:?}");
            assert!(found[0].starts_with("docs/a.md:2: [page-commands]"), "{found:?}");
        }
    }

    #[test]
    fn an_unknown_target_or_script_is_reported() {
        assert_eq!(
            findings("```sh not-run\nmake demos\nKEY=1 scripts/gone out\n```\n"),
            [
                "docs/a.md:2: [page-commands] the Makefile has no target `demos`",
                "docs/a.md:3: [page-commands] the program `scripts/gone` does not exist"
            ]
        );
    }
}
