//! The rules on dependencies between crates: compares the table with `cargo metadata`.
//!
//! A crate *links* its normal and build dependencies, optional ones included; its *tests* use its
//! dev-dependencies.
//!
//! Not here: the table (`table`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use super::Finding;
use super::table::{CrateRow, NEVER_UNDER_CORE, OWNED, Outside, TABLE};
use crate::place::Place;

const CORE: &str = "bullpen-core";

/// A crate of the workspace, from its manifest.
#[derive(Debug)]
struct Crate {
    name: String,
    dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependencies.
#[derive(Debug)]
struct Dependency {
    name: String,
    for_tests: bool,
    default_features: bool,
    features: Vec<String>,
}

/// Which crates each crate links, by name.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Every rule on the crates of the workspace.
pub(crate) fn check(place: &Place) -> Result<Vec<Finding>> {
    let metadata = MetadataCommand::new()
        .current_dir(&place.root)
        .exec()
        .context("could not read the workspace")?;
    let crates = crates(&metadata);
    let names: BTreeSet<&str> = crates.iter().map(|known| known.name.as_str()).collect();
    let mut findings: Vec<Finding> =
        crates.iter().flat_map(|known| check_crate(TABLE, &names, known)).collect();
    findings.extend(check_core(&graph(&metadata)?));
    Ok(findings)
}

/// Checks one crate against its row.
fn check_crate(table: &[CrateRow], workspace: &BTreeSet<&str>, it: &Crate) -> Vec<Finding> {
    let Some(row) = table.iter().find(|row| row.name == it.name) else {
        let text = "has no row in the table of crates (xtask/src/tidy/table.rs)";
        return vec![Finding::failure(&it.name, text)];
    };
    it.dependencies.iter().filter_map(|wanted| check_dependency(row, workspace, wanted)).collect()
}

fn check_dependency(
    row: &CrateRow,
    workspace: &BTreeSet<&str>,
    wanted: &Dependency,
) -> Option<Finding> {
    let name = wanted.name.as_str();
    let owner = OWNED.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, owner)| *owner);
    let refuse = |text: String| Some(Finding::failure(row.name, text));

    if let Some(owner) = owner {
        return if owner == row.name {
            None
        } else {
            refuse(format!("may not touch `{name}`: only {owner} may; add a port instead"))
        };
    }
    if workspace.contains(name) {
        let tested = wanted.for_tests && row.test_crates.contains(&name);
        if !tested && !row.crates.contains(&name) {
            let verb = if wanted.for_tests { "its tests may not use" } else { "may not depend on" };
            return refuse(format!("{verb} the crate `{name}`"));
        }
    } else if let Outside::Only(allowed) = &row.outside
        && !wanted.for_tests
        && !allowed.contains(&name)
    {
        return refuse(format!("may not depend on `{name}`: it is not in its row of the table"));
    }
    if wanted.for_tests { None } else { check_parts(row, wanted) }
}

/// Checks that a crate uses only the features of a dependency that its row allows.
fn check_parts(row: &CrateRow, wanted: &Dependency) -> Option<Finding> {
    let (name, allowed) = row.parts.iter().find(|(name, _)| *name == wanted.name)?;
    let beyond = wanted.features.iter().find(|feature| !allowed.contains(&feature.as_str()));
    let text = match beyond {
        Some(feature) => format!("may not use the feature `{feature}` of `{name}`"),
        None if wanted.default_features => {
            format!("may not use the default features of `{name}`")
        }
        None => return None,
    };
    Some(Finding::failure(row.name, text))
}

/// Checks the core's indirect dependencies as well.
fn check_core(graph: &Graph) -> Vec<Finding> {
    let under = reached(graph, CORE);
    let never = NEVER_UNDER_CORE.iter().filter(|name| under.contains(**name));
    never
        .map(|name| Finding::failure(CORE, format!("reaches `{name}` through its dependencies")))
        .collect()
}

/// Everything that `from` links, directly or not.
fn reached<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        for next in graph.get(name).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}

fn crates(metadata: &Metadata) -> Vec<Crate> {
    let dependency = |from: &cargo_metadata::Dependency| Dependency {
        name: from.name.clone(),
        for_tests: from.kind == DependencyKind::Development,
        default_features: from.uses_default_features,
        features: from.features.clone(),
    };
    let of = |package: &&cargo_metadata::Package| Crate {
        name: package.name.to_string(),
        dependencies: package.dependencies.iter().map(dependency).collect(),
    };
    metadata.workspace_packages().iter().map(of).collect()
}

fn graph(metadata: &Metadata) -> Result<Graph> {
    let names: BTreeMap<&PackageId, String> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let mut graph = Graph::new();
    for node in &resolve.nodes {
        // Build and test dependencies run elsewhere: only what is linked can reach a clock.
        let linked = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|info| info.kind == DependencyKind::Normal)
        });
        let linked = linked.filter_map(|dependency| names.get(&dependency.pkg).cloned());
        let name = names.get(&node.id).context("a resolved package is not listed")?;
        graph.entry(name.clone()).or_default().extend(linked);
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(name: &str) -> Dependency {
        Dependency {
            name: name.to_owned(),
            for_tests: false,
            default_features: false,
            features: vec![],
        }
    }

    fn tests_use(name: &str) -> Dependency {
        Dependency { for_tests: true, ..links(name) }
    }

    fn with(dependency: Dependency, features: &[&str]) -> Dependency {
        Dependency { features: features.iter().map(|&f| f.to_owned()).collect(), ..dependency }
    }

    /// The finding if this crate has this dependency.
    fn says(name: &str, dependency: Dependency) -> Option<String> {
        let workspace: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
        let it = Crate { name: name.to_owned(), dependencies: vec![dependency] };
        check_crate(TABLE, &workspace, &it).pop().map(|finding| finding.text)
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let said = says("bullpen-attic", links("serde")).unwrap();
        assert!(said.contains("no row"), "{said}");
    }

    #[test]
    fn the_core_links_no_runtime_and_no_entropy() {
        assert_eq!(says("bullpen-core", links("serde")), None);
        for name in ["tokio", "futures-util", "rand", "rand_core", "tracing", "bullpen-engine"] {
            assert!(says("bullpen-core", links(name)).is_some(), "{name}");
        }
    }

    #[test]
    fn only_the_aws_crate_names_the_sdk() {
        for row in TABLE {
            for dependency in [links("aws-sdk-ec2"), tests_use("aws-config")] {
                assert_eq!(says(row.name, dependency).is_none(), row.name == "bullpen-aws");
            }
        }
    }

    #[test]
    fn core_and_engine_do_not_even_test_against_an_adapter() {
        for name in ["bullpen-core", "bullpen-engine"] {
            for adapter in ["bullpen-embedded", "bullpen-aws"] {
                assert!(says(name, links(adapter)).is_some(), "{name} {adapter}");
                assert!(says(name, tests_use(adapter)).is_some(), "{name} {adapter}");
            }
        }
    }

    #[test]
    fn adapters_test_against_the_contract_but_do_not_link_it() {
        for name in ["bullpen-embedded", "bullpen-aws"] {
            assert_eq!(says(name, tests_use("bullpen-sim")), None);
            assert!(says(name, links("bullpen-sim")).is_some());
        }
    }

    #[test]
    fn tests_may_use_crates_that_their_crate_may_not_link() {
        assert_eq!(says("bullpen-core", tests_use("proptest")), None);
        assert!(says("bullpen-core", links("proptest")).is_some());
    }

    #[test]
    fn a_crate_uses_only_its_allowed_features() {
        assert_eq!(says("bullpen-engine", with(links("tokio"), &["sync", "time"])), None);
        assert!(says("bullpen-engine", with(links("tokio"), &["sync", "rt"])).is_some());
        let whole = Dependency { default_features: true, ..links("tokio") };
        assert!(says("bullpen-engine", whole).is_some());
        // The AWS crate's binary links the agent's life, and never the other way round.
        assert!(says("bullpen-agent", with(links("bullpen-aws"), &["mailbox"])).is_some());
    }

    #[test]
    fn indirect_dependencies_of_the_core_are_found() {
        let graph = |edges: &[(&str, &str)]| {
            let mut graph = Graph::new();
            for (from, to) in edges {
                graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            graph
        };
        assert_eq!(check_core(&graph(&[(CORE, "serde"), ("other", "tokio")])), []);
        let found = check_core(&graph(&[(CORE, "a"), ("a", "b"), ("b", "tokio"), ("b", "a")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("`tokio`"));
    }

    #[test]
    fn every_crate_named_in_a_row_has_a_row() {
        let names: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
        for row in TABLE {
            for other in row.crates.iter().chain(row.test_crates) {
                assert!(names.contains(other), "{} names {other}", row.name);
            }
        }
    }
}
