//! Checks the manifests: crates inherit the lints, clippy has one configuration, plain builds need no C++ tools.

use std::collections::BTreeSet;

use super::Finding;
use super::workspace::{Package, Workspace};
use crate::tree::Tree;

/// External packages that compile or link llama.cpp.
const LLAMA_CPP: &[&str] = &["llama-cpp-2", "llama-cpp-sys-2"];

pub(super) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = lints_are_inherited(workspace);
    findings.extend(clippy_has_one_configuration(tree));
    findings.extend(default_members_need_no_llama_cpp(workspace));
    findings
}

fn lints_are_inherited(workspace: &Workspace) -> Vec<Finding> {
    let without = workspace.members.iter().filter(|(_, package)| !package.inherits_lints);
    without
        .map(|(folder, _)| {
            let path = format!("{folder}/Cargo.toml");
            Finding::broken("lints", &path, "it lacks `[lints] workspace = true`")
        })
        .collect()
}

/// Clippy reads only the nearest file, so a second one would switch off every ban of the first.
fn clippy_has_one_configuration(tree: &Tree) -> Vec<Finding> {
    let others = tree.paths().filter(|path| {
        let name = path.rsplit('/').next();
        *path != "clippy.toml" && matches!(name, Some("clippy.toml" | ".clippy.toml"))
    });
    others
        .map(|path| {
            Finding::broken("one-clippy-toml", path, "it replaces the bans of the root `clippy.toml`")
        })
        .collect()
}

fn default_members_need_no_llama_cpp(workspace: &Workspace) -> Vec<Finding> {
    let linking = members_that_link_llama_cpp(workspace);
    let reported = linking.intersection(&workspace.default_members);
    reported
        .map(|folder| {
            let message = format!("`{folder}` links llama.cpp, so it may not be a default member");
            Finding::broken("default-members", "Cargo.toml", message)
        })
        .collect()
}

/// The folders of the members that compile llama.cpp with their default features.
fn members_that_link_llama_cpp(workspace: &Workspace) -> BTreeSet<String> {
    let mut linking = BTreeSet::new();
    loop {
        let more: Vec<_> = workspace
            .members
            .iter()
            .filter(|(folder, package)| {
                !linking.contains(*folder) && links_llama_cpp(package, workspace, &linking)
            })
            .map(|(folder, _)| folder.clone())
            .collect();
        if more.is_empty() {
            return linking;
        }
        linking.extend(more);
    }
}

fn links_llama_cpp(package: &Package, workspace: &Workspace, known: &BTreeSet<String>) -> bool {
    let turned_on = package.default_features();
    let all = package.normal.iter().chain(&package.build).chain(&package.dev);
    all.into_iter().any(|dependency| {
        let key = dependency.key.as_str();
        // `name`, `dep:name` and `name/feature` enable an optional dependency; `name?/feature` does not.
        let is_on = !dependency.optional
            || turned_on.iter().any(|on| {
                on.strip_prefix("dep:").unwrap_or(on) == key
                    || on.split_once('/').is_some_and(|(n, _)| n == key)
            });
        let links = LLAMA_CPP.contains(&dependency.package.as_str())
            || known.iter().any(|folder| workspace.members[folder].name == dependency.package);
        is_on && links
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(app: &str) -> Tree {
        Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = ['app', 'native']\ndefault-members = ['app']\n"),
            ("app/Cargo.toml", &format!("[package]\nname = 'app'\n[lints]\nworkspace = true\n{app}")),
            (
                "native/Cargo.toml",
                "[package]\nname = 'native'\n[dependencies]\nllama-cpp-2 = '1'\n[lints]\nworkspace = true\n",
            ),
        ])
    }

    fn rules(app: &str) -> Vec<&'static str> {
        let tree = tree(app);
        check(&tree, &Workspace::parse(&tree).unwrap()).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_default_member_may_use_llama_cpp_in_an_optional_feature() {
        let app =
            "[features]\nllama = ['dep:native']\n[dependencies]\nnative = { path = 'x', optional = true }\n";
        assert_eq!(rules(app), Vec::<&str>::new());
        let weak = "[features]\ndefault = ['native?/fast']\n\
                    [dependencies]\nnative = { path = 'x', optional = true }\n";
        assert_eq!(rules(weak), Vec::<&str>::new());
    }

    #[test]
    fn a_default_member_may_not_use_llama_cpp_by_default() {
        assert_eq!(rules("[dependencies]\nnative.workspace = true\n"), ["default-members"]);
        assert_eq!(rules("[dev-dependencies]\nnative.workspace = true\n"), ["default-members"]);
        let on = "[features]\ndefault = ['llama']\nllama = ['dep:native']\n\
                  [dependencies]\nnative = { path = 'x', optional = true }\n";
        assert_eq!(rules(on), ["default-members"]);
        let through_its_feature = "[features]\ndefault = ['native/fast']\n\
                  [dependencies]\nnative = { path = 'x', optional = true }\n";
        assert_eq!(rules(through_its_feature), ["default-members"]);
    }

    #[test]
    fn a_crate_that_does_not_inherit_the_lints_is_reported() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = ['app']\n"),
            ("app/Cargo.toml", "[package]\nname = 'app'\n[lints]\nworkspace = false\n"),
        ]);
        let findings = check(&tree, &Workspace::parse(&tree).unwrap());
        assert_eq!(findings[0].to_string(), "app/Cargo.toml: [lints] it lacks `[lints] workspace = true`");
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn a_second_clippy_configuration_is_reported() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = []\n"),
            ("clippy.toml", ""),
            ("crates/a/clippy.toml", ""),
            ("crates/b/.clippy.toml", ""),
        ]);
        let findings = check(&tree, &Workspace::parse(&tree).unwrap());
        let named: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(named, ["crates/a/clippy.toml", "crates/b/.clippy.toml"]);
    }
}
