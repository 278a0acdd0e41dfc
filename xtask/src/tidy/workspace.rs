//! Parses the workspace's manifests: members, default members and dependencies.
//!
//! It reads the files instead of `cargo metadata`, so the rules need no build and no network, and tests can use a small tree.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "manifest";

#[derive(Debug)]
pub(super) struct Workspace {
    /// The package of each folder in `members`.
    pub(super) members: BTreeMap<String, Package>,
    /// Folders in `default-members`.
    pub(super) default_members: BTreeSet<String>,
}

/// The parts of a package's manifest that the rules use.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) normal: Vec<Dependency>,
    pub(super) dev: Vec<Dependency>,
    pub(super) build: Vec<Dependency>,
    /// The features and dependencies that each feature enables.
    pub(super) features: BTreeMap<String, Vec<String>>,
    /// `[lints] workspace = true`.
    pub(super) inherits_lints: bool,
}

/// An entry of a dependency table.
#[derive(Debug)]
pub(super) struct Dependency {
    /// The name in the package's code.
    pub(super) key: String,
    /// The name of the dependency's package.
    pub(super) package: String,
    pub(super) optional: bool,
}

impl Workspace {
    /// Parses the root manifest and those of all members.
    pub(super) fn parse(tree: &Tree) -> Result<Self, Finding> {
        let root = manifest(tree, "Cargo.toml")?;
        let folders = |key: &str| {
            let list =
                root.get("workspace").and_then(|workspace| workspace.get(key)).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let mut members = BTreeMap::new();
        for folder in folders("members") {
            let path = format!("{folder}/Cargo.toml");
            let package = Package::from_manifest(&manifest(tree, &path)?)
                .ok_or_else(|| Finding::broken(RULE, &path, "it has no `package.name`"))?;
            members.insert(folder, package);
        }
        Ok(Self { members, default_members: folders("default-members") })
    }

    /// The member called `name`.
    pub(super) fn package(&self, name: &str) -> Option<&Package> {
        self.members.values().find(|package| package.name == name)
    }
}

impl Package {
    fn from_manifest(manifest: &Table) -> Option<Self> {
        let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
        let features = manifest.get("features").and_then(Value::as_table);
        let features = features.into_iter().flatten().map(|(feature, turns_on)| {
            let turns_on = turns_on.as_array().into_iter().flatten().filter_map(Value::as_str);
            (feature.clone(), turns_on.map(str::to_owned).collect())
        });
        let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        Some(Self {
            name,
            normal: dependencies(manifest, "dependencies"),
            dev: dependencies(manifest, "dev-dependencies"),
            build: dependencies(manifest, "build-dependencies"),
            features: features.collect(),
            inherits_lints: lints.and_then(Value::as_bool) == Some(true),
        })
    }

    /// Everything that the package's default features enable, directly or through other features: names of features, and
    /// references to dependencies as written in the manifest.
    pub(super) fn default_features(&self) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec!["default"];
        while let Some(feature) = open.pop() {
            for next in self.features.get(feature).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

fn manifest(tree: &Tree, path: &str) -> Result<Table, Finding> {
    let text = tree.text(path).ok_or_else(|| Finding::broken(RULE, path, "it is missing"))?;
    text.parse().map_err(|error: toml::de::Error| Finding::broken(RULE, path, error.message().to_owned()))
}

/// The dependencies of one kind, with those under `[target.…]`.
fn dependencies(manifest: &Table, kind: &str) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let by_target = targets.into_iter().flatten().filter_map(|(_, target)| target.get(kind));
    let tables = manifest.get(kind).into_iter().chain(by_target).filter_map(Value::as_table);
    tables
        .flatten()
        .map(|(key, entry)| Dependency {
            key: key.clone(),
            package: entry.get("package").and_then(Value::as_str).unwrap_or(key).to_owned(),
            optional: entry.get("optional").and_then(Value::as_bool) == Some(true),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_and_target_dependencies_have_their_real_names() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = ['a']\ndefault-members = ['a']\n"),
            (
                "a/Cargo.toml",
                "[package]\nname = 'a'\n[dependencies]\nshort = { package = 'long', optional = true }\n\
                 [target.'cfg(unix)'.dependencies]\nother.workspace = true\n[lints]\nworkspace = true\n",
            ),
        ]);
        let workspace = Workspace::parse(&tree).unwrap();
        let package = &workspace.members["a"];
        let seen: Vec<_> =
            package.normal.iter().map(|d| (d.key.as_str(), d.package.as_str(), d.optional)).collect();
        assert_eq!(seen, [("short", "long", true), ("other", "other", false)]);
        assert!(package.inherits_lints);
        assert!(workspace.default_members.contains("a"));
    }

    #[test]
    fn a_member_without_a_manifest_is_a_finding() {
        let tree = Tree::of([("Cargo.toml", "[workspace]\nmembers = ['a']\n")]);
        assert_eq!(Workspace::parse(&tree).unwrap_err().path, "a/Cargo.toml");
    }

    #[test]
    fn default_features_include_those_that_they_enable() {
        let manifest = "[package]\nname = 'a'\n[features]\ndefault = ['x']\nx = ['dep:y']\nz = ['dep:w']\n";
        let package = Package::from_manifest(&manifest.parse().unwrap()).unwrap();
        assert_eq!(package.default_features(), BTreeSet::from(["x", "dep:y"]));
    }
}
