//! `bullpen labels parse`: shows what a job's labels request, and their errors.
//!
//! Not here: the grammar (`bullpen_core::labels`), or a stack's permission ([`permission`]).

mod permission;

use std::fmt::Write as _;
use std::path::PathBuf;

use bullpen_core::class::RunnerClass;
use bullpen_core::config::runs_on::Config;
use bullpen_core::ids::Repository;
use bullpen_core::labels::class::{Catalogue, ClassRef, ResolveError, Resolved, resolve};
use bullpen_core::labels::value::AmountRange;
use bullpen_core::labels::{self, LabelKey, LabelSpec, Parsed};
use bullpen_core::printable::one_line;
use bullpen_core::severity::Severity;
use serde_json::{Map, Value, json};

use crate::config_file::{self, Unusable};
use crate::exit::Exit;
use crate::render;
use permission::{Asker, Permission};

/// The labels to read, and the configuration to judge them by.
#[derive(Debug, clap::Args)]
pub(crate) struct ParseArgs {
    /// The labels of one job, each as one argument
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    /// The configuration that names runners and images [default: the built-in classes]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also check whether a stack with this configuration allows the labels; fails if it does not
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    policy: Option<PathBuf>,
    /// With --policy: the repository of the job, as OWNER/NAME
    #[arg(
        long,
        value_name = "REPOSITORY",
        requires = "policy",
        default_value = "owner/repository"
    )]
    repository: String,
    /// With --policy: the id of the job's run [default: the id in the labels]
    #[arg(long, value_name = "ID", requires = "policy")]
    run_id: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `bullpen labels parse`; fails if no stack can serve the labels.
pub(crate) fn parse(args: &ParseArgs) -> Exit {
    let config = match args.config.as_ref().or(args.policy.as_ref()).map(|it| config_file::load(it))
    {
        None => None,
        Some(Ok(config)) => Some(config),
        Some(Err(Unusable { what, hint })) => {
            render::error(&what, hint.as_deref());
            return Exit::Failed;
        }
    };
    let defaults = || Catalogue::of_classes(&RunnerClass::defaults());
    let catalogue = config.as_ref().map_or_else(defaults, Config::catalogue);
    let mut answer = Answer::of(&args.labels, &catalogue);
    if let Some(config) = config.filter(|_| args.policy.is_some()) {
        let repository = Repository::new(&args.repository);
        let asker = Asker { repository: &repository, run_id: args.run_id.as_deref() };
        let permission = Permission::of(&args.labels, &answer.parsed, &config, &asker);
        answer.permission = Some(permission);
    }
    if args.json {
        render::json(&answer.json().to_string());
    } else {
        render::page(answer.text().trim_end());
    }
    if answer.is_usable() { Exit::Done } else { Exit::Failed }
}

/// The command's result for one job's labels.
struct Answer {
    parsed: Parsed,
    /// The job's class; `None` if a pool decides it or the labels are not ours.
    class: Option<Result<Resolved, ResolveError>>,
    /// The permission by a policy, if the command got one.
    permission: Option<Permission>,
}

impl Answer {
    fn of(labels: &[String], catalogue: &Catalogue) -> Self {
        let parsed = labels::parse(labels);
        let has_class = parsed.has_head && parsed.ours && parsed.spec.pool.is_none();
        let is_readable = parsed.errors().next().is_none();
        let class = (has_class && is_readable).then(|| resolve(&parsed.spec, catalogue));
        Self { parsed, class, permission: None }
    }

    fn is_usable(&self) -> bool {
        let is_refused = self.permission.as_ref().is_some_and(Permission::is_refused);
        let is_valid = self.parsed.errors().next().is_none() && !matches!(self.class, Some(Err(_)));
        is_valid && !is_refused
    }

    /// The severity and the message of each finding.
    fn findings(&self) -> Vec<(Severity, String)> {
        let parsed = self.parsed.findings.iter();
        let mut findings: Vec<_> =
            parsed.map(|found| (found.severity(), found.to_string())).collect();
        if let Some(Err(error)) = &self.class {
            findings.push((Severity::Error, error.to_string()));
        }
        findings
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:<12} {}", one_line(value));
        };
        let spec = &self.parsed.spec;
        line("ours", ours(&self.parsed));
        let head = [("id", spec.id.clone()), ("pool", spec.pool.as_ref().map(ToString::to_string))];
        let stack = [("env", spec.env.clone()), ("region", spec.region.clone())];
        for (name, value) in head.into_iter().chain(stack) {
            if let Some(value) = value {
                line(name, &value.escape_debug().to_string());
            }
        }
        for (key, value) in spec.pairs() {
            line(key.as_str(), &value);
        }
        if let Some(Ok(resolved)) = &self.class {
            line("class", &class_text(&resolved.class));
        }
        for permission in self.permission.iter().flat_map(Permission::lines) {
            line("policy", &permission);
        }
        for (severity, message) in self.findings() {
            let _ = writeln!(text, "{}: {}", severity.as_str(), one_line(&message));
        }
        text
    }

    fn json(&self) -> Value {
        let findings = self.parsed.findings.iter().map(|finding| {
            json!({
                "severity": finding.severity().as_str(),
                "label": finding.label,
                "key": finding.key,
                "message": finding.problem.to_string(),
            })
        });
        let resolve = self.class.as_ref().and_then(|class| class.as_ref().err()).map(|error| {
            let message = error.to_string();
            json!({ "severity": "error", "label": null, "key": null, "message": message })
        });
        let class = self.class.as_ref().and_then(|class| class.as_ref().ok());
        let policy = self
            .permission
            .as_ref()
            .map(|permission| json!({ "verdict": permission.word(), "lines": permission.lines() }));
        json!({
            "policy": policy,
            "ours": self.parsed.ours,
            "dependabot": self.parsed.spec.dependabot,
            "id": self.parsed.spec.id,
            "spec": spec_json(&self.parsed.spec),
            "class": class.map(|resolved| class_json(&resolved.class)),
            "findings": findings.chain(resolve).collect::<Vec<_>>(),
        })
    }
}

fn ours(parsed: &Parsed) -> &'static str {
    match (parsed.ours, parsed.has_head, parsed.spec.dependabot) {
        (false, ..) => "no",
        (true, false, _) => "if there is a pool named dependabot",
        (true, true, true) => "yes; goes to the pool named dependabot, if there is one",
        (true, true, false) => "yes",
    }
}

fn class_text(class: &ClassRef) -> String {
    let kind = match class {
        ClassRef::Named(_) => "named",
        ClassRef::Anonymous(_) => "anonymous: no reuse",
    };
    let RunnerClass { name, vcpu, memory_mib_min, architecture, .. } = class.class();
    let (min, max, arch) = (vcpu.min, vcpu.max, architecture.as_str());
    format!("{name} ({kind}), {min}-{max} vCPU, at least {memory_mib_min} MiB, {arch}")
}

fn class_json(class: &ClassRef) -> Value {
    let RunnerClass { name, vcpu, memory_mib_min, architecture, .. } = class.class();
    json!({
        "name": name,
        "named": matches!(class, ClassRef::Named(_)),
        "vcpu": { "min": vcpu.min, "max": vcpu.max },
        "memory_mib_min": memory_mib_min,
        "architecture": architecture.as_str(),
    })
}

/// The parsed labels, each key under its own name; amounts as numbers, lists as lists.
fn spec_json(spec: &LabelSpec) -> Value {
    let mut map = Map::new();
    let mut put = |key: LabelKey, value: Value| {
        if !value.is_null() {
            map.insert(key.as_str().to_owned(), value);
        }
    };
    put(LabelKey::Pool, json!(spec.pool));
    put(LabelKey::Env, json!(spec.env));
    put(LabelKey::Region, json!(spec.region));
    for (key, value) in spec.pairs() {
        let value = match key {
            LabelKey::Cpu => amounts_json(spec.cpu),
            LabelKey::Ram => amounts_json(spec.ram),
            LabelKey::Family | LabelKey::Extras => value.split('+').collect(),
            LabelKey::Ssh | LabelKey::Private | LabelKey::Debug | LabelKey::NestedVirt => {
                Value::Bool(value == "true")
            }
            _ => Value::String(value),
        };
        put(key, value);
    }
    Value::Object(map)
}

fn amounts_json(amounts: Option<AmountRange>) -> Value {
    let number = |milli: u32| {
        let whole = milli.is_multiple_of(1_000);
        if whole { json!(milli / 1_000) } else { json!(f64::from(milli) / 1_000.0) }
    };
    amounts.map_or(
        Value::Null,
        |amounts| json!({ "min": number(amounts.min_milli), "max": number(amounts.max_milli) }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(labels: &[&str]) -> Answer {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        Answer::of(&labels, &Catalogue::of_classes(&RunnerClass::defaults()))
    }

    #[test]
    fn a_packed_label_is_shown_line_by_line() {
        let answer = answer(&["runs-on=42/cpu=2/ram=4/spot=true"]);
        assert_eq!(
            answer.text(),
            "ours         yes\n\
             id           42\n\
             cpu          2\n\
             ram          4\n\
             spot         price-capacity-optimized\n\
             class        large (named), 2-2 vCPU, at least 4096 MiB, x64\n"
        );
        assert!(answer.is_usable());
    }

    #[test]
    fn an_error_is_shown_and_makes_the_labels_unusable() {
        let wrong = answer(&["runs-on/cpus=4"]);
        assert_eq!(
            wrong.text(),
            "ours         yes\n\
             error: label \"runs-on/cpus=4\": cpus: there is no such key; did you mean \"cpu\"?\n"
        );
        assert!(!wrong.is_usable());
        let unknown = answer(&["runs-on/runner=lagre"]);
        assert!(!unknown.is_usable() && unknown.text().contains("did you mean \"large\"?"));
        assert!(answer(&["self-hosted"]).is_usable());
    }

    #[test]
    fn json_has_numbers_and_lists() {
        let json = answer(&["bullpen=7/cpu=0.5+4/family=t3+c7a.large/ssh=false/env=dev"]).json();
        let expected = json!({
            "cpu": { "min": 0.5, "max": 4 },
            "family": ["c7a.large", "t3*"],
            "ssh": false,
            "env": "dev",
        });
        assert_eq!(json["spec"], expected);
        assert_eq!(json["id"], "7");
        assert_eq!(json["class"]["vcpu"], json!({ "min": 1, "max": 4 }));
        assert_eq!(json["class"]["named"], false);
        assert_eq!(json["findings"], json!([]));
        let pool = answer(&["runs-on/pool=small/cpu=x"]).json();
        assert_eq!(pool["spec"], json!({ "pool": "small" }));
        assert_eq!(pool["class"], Value::Null);
        assert_eq!(pool["findings"][0]["message"], "it is ignored: the pool decides");
        assert_eq!(answer(&["dependabot"]).json()["dependabot"], true);
    }
}
