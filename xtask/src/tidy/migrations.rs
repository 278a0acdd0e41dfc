//! Checks database migrations: they are named `NNNN_verb_noun.sql`, numbered without a gap in each folder, and never changed,
//! because databases record the applied ones. [`SUMS`] has their checksums.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "migration-name";
const FROZEN: &str = "migration-frozen";
/// The output of `sha256sum migrations/*/*.sql`.
const SUMS: &str = "migrations/SHA256SUMS";

/// Checks every `.sql` file below a folder called `migrations`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    for path in tree.paths() {
        let Some((folder, name)) = path.rsplit_once('/') else {
            continue;
        };
        let Some(stem) = name.strip_suffix(".sql") else {
            continue;
        };
        if !folder.split('/').any(|part| part == "migrations") {
            continue;
        }
        let Some(number) = number_of(stem) else {
            findings.push(Finding::broken(RULE, path, "it is not named `NNNN_verb_noun.sql`"));
            continue;
        };
        let last = numbers.entry(folder).or_default();
        let expected = *last + 1;
        if number != expected {
            findings.push(Finding::broken(
                RULE,
                path,
                format!("the next number in this folder is {expected:04}"),
            ));
        }
        *last = number;
        findings.extend(check_sum(tree, path));
    }
    findings
}

/// Compares a migration with its recorded checksum.
fn check_sum(tree: &Tree, path: &str) -> Option<Finding> {
    let digest = Sha256::digest(tree.text(path)?);
    let sum = digest.iter().fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"));
    let sums = tree.text(SUMS).unwrap_or_default();
    let recorded = sums.lines().filter_map(|line| line.split_once("  ")).find(|(_, file)| *file == path);
    match recorded {
        Some((recorded, _)) if recorded == sum => None,
        Some(_) => {
            let problem = "it was changed, and databases have applied it; restore it and add a new migration";
            Some(Finding::broken(FROZEN, path, problem))
        }
        None => Some(Finding::broken(FROZEN, path, format!("{SUMS} lacks the line `{sum}  {path}`"))),
    }
}

/// The number of a well-formed name.
fn number_of(stem: &str) -> Option<u32> {
    let (number, words) = stem.split_once('_')?;
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let well_formed = number.len() == 4
        && number.chars().all(|c| c.is_ascii_digit())
        && words.split('_').all(is_word)
        && words.split('_').count() >= 2;
    if well_formed { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum of an empty file.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn named<const N: usize>(paths: [&str; N]) -> Vec<String> {
        let sums = paths.map(|path| format!("{EMPTY}  {path}\n")).concat();
        let tree = Tree::of(paths.map(|path| (path, ""))).and(SUMS, &sums);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_changed_migration_and_an_unrecorded_one_are_reported() {
        let [first, second] =
            ["migrations/sqlite/0001_create_runs.sql", "migrations/sqlite/0002_add_cost.sql"];
        let sums = format!("{EMPTY}  {first}\n");
        let findings = check(&Tree::of([(first, "changed"), (second, ""), (SUMS, &sums)]));
        let [changed, unrecorded] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(changed.to_string().contains("add a new migration"), "{changed}");
        assert!(unrecorded.to_string().contains(&format!("`{EMPTY}  {second}`")), "{unrecorded}");
    }

    #[test]
    fn each_folder_numbers_its_migrations() {
        let good = [
            "migrations/sqlite/0001_create_runs.sql",
            "migrations/sqlite/0002_add_run_cost.sql",
            "migrations/postgres/0001_create_runs.sql",
            "queries/any name.sql",
        ];
        assert_eq!(named(good), Vec::<String>::new());
    }

    #[test]
    fn a_bad_name_and_a_gap_are_reported() {
        assert_eq!(
            named(["migrations/0001_create_runs.sql", "migrations/0003_add_cost.sql", "migrations/init.sql"]),
            [
                "migrations/0003_add_cost.sql: [migration-name] the next number in this folder is 0002",
                "migrations/init.sql: [migration-name] it is not named `NNNN_verb_noun.sql`",
            ]
        );
        for bad in
            ["migrations/1_create_runs.sql", "migrations/0001_runs.sql", "migrations/0001_Create_runs.sql"]
        {
            assert_eq!(named([bad]).len(), 1, "{bad}");
        }
    }
}
