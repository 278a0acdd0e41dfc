//! Checks the layers: which crate of the workspace may depend on which.
//!
//! The table below is the rule. A new edge is a design decision: change ARCHITECTURE.md first.

use super::Finding;
use super::workspace::{Dependency, Workspace};

const RULE: &str = "layers";

/// One crate and its permitted edges to other crates of the workspace.
struct Layer {
    package: &'static str,
    /// Crates that its code may use.
    uses: &'static [&'static str],
    /// Crates that only its tests may use, in addition.
    tests_use: &'static [&'static str],
}

const DOMAIN_AND_PORTS: &[&str] = &["podium-domain", "podium-ports"];

const SQL_STORE: &[&str] = &["podium-domain", "podium-ports", "podium-store-format"];

const TESTKIT: &[&str] = &["podium-testkit"];

/// Test dependencies of adapters and programs whose tests start real servers.
const SERVERS: &[&str] = &["podium-harness", "podium-testkit"];

const LAYERS: &[Layer] = &[
    Layer { package: "podium-domain", uses: &[], tests_use: &[] },
    Layer { package: "podium-ports", uses: &["podium-domain"], tests_use: &[] },
    Layer {
        package: "podium-engine",
        uses: DOMAIN_AND_PORTS,
        // The engine's tests use the two embedded adapters. Tests that need concurrent writers, such as conflicts of budgets, use
        // Postgres.
        tests_use: &[
            "podium-harness",
            "podium-memory",
            "podium-store-postgres",
            "podium-store-sqlite",
            "podium-testkit",
        ],
    },
    Layer { package: "podium-head", uses: &["podium-domain"], tests_use: &[] },
    Layer { package: "podium-api", uses: &["podium-domain"], tests_use: &[] },
    Layer { package: "podium-bundle", uses: &["podium-domain"], tests_use: &[] },
    Layer { package: "podium-store-format", uses: DOMAIN_AND_PORTS, tests_use: &[] },
    Layer { package: "podium-store-sqlite", uses: SQL_STORE, tests_use: TESTKIT },
    Layer { package: "podium-store-postgres", uses: SQL_STORE, tests_use: SERVERS },
    Layer { package: "podium-queue-nats", uses: DOMAIN_AND_PORTS, tests_use: SERVERS },
    Layer { package: "podium-redis", uses: DOMAIN_AND_PORTS, tests_use: SERVERS },
    Layer { package: "podium-demo-workers", uses: &[], tests_use: &[] },
    Layer { package: "podium-harness", uses: &[], tests_use: &[] },
    // It is published: its code depends on no other crate of the workspace. Tests call it against a scripted server.
    Layer { package: "podium-client", uses: &[], tests_use: &["podium-api", "podium-harness"] },
    Layer {
        package: "podium-bench-store",
        uses: &[
            "podium-bench-measure",
            "podium-domain",
            "podium-harness",
            "podium-ports",
            "podium-store-postgres",
            "podium-store-sqlite",
            "podium-testkit",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-bench-limits",
        uses: &[
            "podium-domain",
            "podium-engine",
            "podium-harness",
            "podium-local-cluster",
            "podium-memory",
            "podium-ports",
            "podium-redis",
            "podium-setup",
            "podium-store-sqlite",
            "podium-testkit",
            "podium-vendor-sim",
            "podium-vendors",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-local-cluster",
        uses: &[
            "podium-cluster",
            "podium-executor",
            "podium-gateway",
            "podium-harness",
            "podium-planner",
            "podium-ports",
            "podium-vendor-sim",
        ],
        // Tests set and read budgets with the operators' command.
        tests_use: &["podium-api", "podium-domain", "podium-store-postgres"],
    },
    Layer {
        package: "podium-bench-early",
        uses: &[
            "podium-domain",
            "podium-engine",
            "podium-memory",
            "podium-ports",
            "podium-setup",
            "podium-store-sqlite",
        ],
        tests_use: &[],
    },
    Layer { package: "podium-bench-measure", uses: &["podium-harness"], tests_use: &[] },
    Layer {
        package: "podium-bench-gateways",
        uses: &["podium", "podium-bench-measure", "podium-harness", "podium-local-cluster"],
        tests_use: &[],
    },
    Layer {
        package: "podium-bench-load",
        uses: &[
            "podium-bench-measure",
            "podium-domain",
            "podium-server",
            "podium-harness",
            "podium-local-cluster",
            "podium-ports",
            "podium-setup",
            "podium-store-postgres",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-bench-engine",
        uses: &[
            "podium-bench-measure",
            "podium-cluster",
            "podium-domain",
            "podium-executor",
            "podium-gateway",
            "podium-harness",
            "podium-planner",
            "podium-ports",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-simulation",
        uses: &["podium-domain", "podium-engine", "podium-ports", "podium-testkit"],
        tests_use: &[],
    },
    Layer { package: "podium-memory", uses: DOMAIN_AND_PORTS, tests_use: TESTKIT },
    Layer { package: "podium-vendors", uses: DOMAIN_AND_PORTS, tests_use: TESTKIT },
    Layer {
        package: "podium-conductor",
        uses: &["podium-bundle", "podium-domain", "podium-head", "podium-ports"],
        // Tests check a planning model with the real limiter.
        tests_use: &["podium-testkit", "podium-memory"],
    },
    Layer {
        package: "podium-llama",
        uses: &["podium-bundle", "podium-domain", "podium-head", "podium-ports"],
        tests_use: TESTKIT,
    },
    Layer {
        package: "podium-bench-llama",
        uses: &["podium-bundle", "podium-domain", "podium-llama", "podium-ports"],
        tests_use: &[],
    },
    Layer {
        package: "podium-server",
        uses: &["podium-api", "podium-domain", "podium-engine", "podium-ports"],
        // Tests call the servers over sockets, with an engine behind them.
        tests_use: &["podium-harness", "podium-testkit", "podium-memory", "podium-store-sqlite"],
    },
    Layer { package: "podium-setup", uses: DOMAIN_AND_PORTS, tests_use: &[] },
    Layer {
        package: "podium-planning",
        uses: &[
            "podium-bundle",
            "podium-conductor",
            "podium-domain",
            "podium-ports",
            "podium-setup",
            "podium-vendors",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-telemetry",
        uses: &["podium-domain", "podium-ports", "podium-setup"],
        tests_use: &["podium-testkit"],
    },
    Layer {
        package: "podium-cluster",
        uses: &[
            "podium-bundle",
            "podium-domain",
            "podium-engine",
            "podium-planning",
            "podium-ports",
            "podium-queue-nats",
            "podium-redis",
            "podium-setup",
            "podium-store-postgres",
            "podium-telemetry",
            "podium-vendors",
        ],
        tests_use: SERVERS,
    },
    Layer {
        package: "podium-gateway",
        uses: &[
            "podium-api",
            "podium-cluster",
            "podium-server",
            "podium-engine",
            "podium-planning",
            "podium-ports",
            "podium-setup",
            "podium-telemetry",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-planner",
        uses: &[
            "podium-bundle",
            "podium-cluster",
            "podium-engine",
            "podium-llama",
            "podium-planning",
            "podium-ports",
            "podium-setup",
        ],
        tests_use: &[],
    },
    Layer {
        package: "podium-executor",
        uses: &["podium-cluster", "podium-engine", "podium-planning", "podium-setup"],
        tests_use: &[],
    },
    Layer { package: "podium-testkit", uses: DOMAIN_AND_PORTS, tests_use: &[] },
    Layer {
        package: "podium",
        uses: &[
            "podium-api",
            "podium-bundle",
            "podium-server",
            "podium-domain",
            "podium-engine",
            "podium-head",
            "podium-llama",
            "podium-memory",
            "podium-planning",
            "podium-ports",
            "podium-setup",
            "podium-store-postgres",
            "podium-store-sqlite",
            "podium-telemetry",
            "podium-vendor-sim",
            "podium-vendors",
        ],
        // A test prints the settings of all programs; another calls the server with the published client.
        tests_use: &[
            "podium-client",
            "podium-executor",
            "podium-gateway",
            "podium-harness",
            "podium-planner",
            "podium-testkit",
        ],
    },
    Layer {
        package: "podium-vendor-sim",
        uses: &["podium-demo-workers"],
        // Tests call it through the vendor adapters, and check its faults with an engine and a conductor.
        tests_use: &[
            "podium-conductor",
            "podium-domain",
            "podium-engine",
            "podium-memory",
            "podium-ports",
            "podium-store-sqlite",
            "podium-testkit",
            "podium-vendors",
        ],
    },
    Layer { package: "xtask", uses: &[], tests_use: &[] },
];

/// Checks that the table lists exactly the crates of the workspace and contains each of their edges.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    check_against(LAYERS, workspace)
}

fn check_against(layers: &[Layer], workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, package) in &workspace.members {
        let path = format!("{folder}/Cargo.toml");
        let Some(layer) = layers.iter().find(|layer| layer.package == package.name) else {
            findings.push(Finding::broken(
                RULE,
                &path,
                format!("`{}` is not in the layer table", package.name),
            ));
            continue;
        };
        let own = |dependency: &&Dependency| workspace.package(&dependency.package).is_some();
        for dependency in package.normal.iter().chain(&package.build).filter(own) {
            if !layer.uses.contains(&dependency.package.as_str()) {
                let edge = format!("`{}` may not depend on `{}`", package.name, dependency.package);
                findings.push(Finding::broken(RULE, &path, edge));
            }
        }
        for dependency in package.dev.iter().filter(own) {
            let name = dependency.package.as_str();
            if !layer.uses.contains(&name) && !layer.tests_use.contains(&name) {
                let edge = format!("the tests of `{}` may not depend on `{name}`", package.name);
                findings.push(Finding::broken(RULE, &path, edge));
            }
        }
    }
    for layer in layers.iter().filter(|layer| workspace.package(layer.package).is_none()) {
        let stale = format!("`{}` is in the layer table and not in the workspace", layer.package);
        findings.push(Finding::broken(RULE, "Cargo.toml", stale));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const TWO: &[Layer] = &[
        Layer { package: "upper", uses: &["lower"], tests_use: &["kit"] },
        Layer { package: "lower", uses: &[], tests_use: &[] },
        Layer { package: "kit", uses: &["lower"], tests_use: &[] },
    ];

    fn messages(upper: &str, lower: &str) -> Vec<String> {
        let root = "[workspace]\nmembers = ['upper', 'lower', 'kit']\n";
        let tree = Tree::of([
            ("Cargo.toml", root),
            ("upper/Cargo.toml", &format!("[package]\nname = 'upper'\n{upper}")),
            ("lower/Cargo.toml", &format!("[package]\nname = 'lower'\n{lower}")),
            ("kit/Cargo.toml", "[package]\nname = 'kit'\n"),
        ]);
        let findings = check_against(TWO, &Workspace::parse(&tree).unwrap());
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn edges_in_the_table_and_to_external_crates_pass() {
        let upper =
            "[dependencies]\nlower.workspace = true\nserde = '1'\n[dev-dependencies]\nkit.workspace = true\n";
        assert_eq!(messages(upper, ""), Vec::<String>::new());
    }

    #[test]
    fn an_edge_to_an_upper_layer_is_reported() {
        assert_eq!(
            messages("", "[dependencies]\nupper.workspace = true\n"),
            ["lower/Cargo.toml: [layers] `lower` may not depend on `upper`"]
        );
    }

    #[test]
    fn a_test_edge_is_refused_in_the_code() {
        assert_eq!(
            messages("[dependencies]\nkit.workspace = true\n", ""),
            ["upper/Cargo.toml: [layers] `upper` may not depend on `kit`"]
        );
        assert_eq!(
            messages("", "[dev-dependencies]\nkit.workspace = true\n"),
            ["lower/Cargo.toml: [layers] the tests of `lower` may not depend on `kit`"]
        );
    }

    #[test]
    fn an_optional_edge_is_an_edge() {
        assert_eq!(
            messages("", "[dependencies]\nkit = { workspace = true, optional = true }\n"),
            ["lower/Cargo.toml: [layers] `lower` may not depend on `kit`"]
        );
    }

    #[test]
    fn a_missing_and_a_stale_entry_are_reported() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = ['new']\n"),
            ("new/Cargo.toml", "[package]\nname = 'new'\n"),
        ]);
        let found = check_against(&TWO[1..2], &Workspace::parse(&tree).unwrap());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "new/Cargo.toml: [layers] `new` is not in the layer table",
                "Cargo.toml: [layers] `lower` is in the layer table and not in the workspace",
            ]
        );
    }
}
