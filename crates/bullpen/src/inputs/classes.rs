//! The class table as JSON, and a request's choice of a class.
//!
//! The named classes are the runners of `runs-on.yml` and the classes of the table; without both,
//! the seven default classes. A runner of the file wins over a class of the same name.
//!
//! Not here: the classes of labels (`bullpen_core::labels::class`).

use std::fmt;
use std::ops::RangeInclusive;

use bullpen_core::class::{Architecture, RunnerClass, Scripts, Usage, VcpuRange};
use bullpen_core::config::Config;
use bullpen_core::config::runner::RunnerConfig;
use bullpen_core::ids::ClassName;
use bullpen_core::labels::LabelSpec;
use bullpen_core::labels::class::{Resolved, resolve};
use bullpen_core::labels::value::Spot;
use bullpen_core::request::TypePattern;
use bullpen_core::spelling;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::UsageError;
use super::given::{Given, shown};
use super::values::{number, whole_is};

/// The default class of a request.
const DEFAULT_CLASS: &str = "large";
/// The default machine types, if neither the request nor its class has any.
const DEFAULT_TYPES: [&str; 3] = ["c*", "m*", "r*"];
/// The most classes, because each class has its own queue.
const CLASSES_MAX: usize = 100;
/// The table's keys and their ranges, up to four times the largest machine.
const KEYS: [(&str, RangeInclusive<u32>); 2] = [("cpu", 1..=4_096), ("mmem", 1..=134_217_728)];

/// The runners of a file as classes, by name, without unusable runners; a request that names such a
/// runner gets an error with the reason.
pub(crate) fn runner_classes(config: &Config) -> Vec<(ClassName, RunnerClass)> {
    let catalogue = config.catalogue();
    let class = |name: &ClassName| {
        let spec = LabelSpec { runner: Some(name.clone()), ..LabelSpec::default() };
        let resolved = resolve(&spec, &catalogue).ok()?;
        Some((name.clone(), resolved.class.class().clone()))
    };
    config.runners.keys().filter_map(class).collect()
}

/// A request's inputs about its machines; the class is unchecked, because it needs the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineChoice {
    /// The class's name, as the user gave it.
    pub(crate) class: Option<Given>,
    /// The classes of the table.
    pub(crate) table: Vec<RunnerClass>,
    /// Spot or on-demand.
    pub(crate) usage: Option<Usage>,
    /// The allowed machine types.
    pub(crate) allowed_types: Option<Vec<TypePattern>>,
}

/// The machines of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Their class.
    pub(crate) class: RunnerClass,
    /// Spot or on-demand.
    pub(crate) usage: Usage,
    /// The allowed machine types.
    pub(crate) allowed_types: Vec<TypePattern>,
}

impl MachineChoice {
    /// Resolves the choice among the classes of `runs-on.yml` and the table. The runner and then
    /// the defaults fill in what the request leaves open.
    pub(crate) fn machine(&self, config: Option<&Config>) -> Result<Machine, UsageError> {
        let wanted = ClassName::new(self.class.as_ref().map_or(DEFAULT_CLASS, Given::word));
        let runner = config.and_then(|config| Some((config, config.runners.get(&wanted)?)));
        let class = match runner {
            Some((config, _)) => self.of_runner(&wanted, config)?,
            None => self.of_table(&wanted, config)?,
        };
        let runner = runner.map(|(_, runner)| runner);
        let families = runner.map(|runner| runner.family.clone()).filter(|list| !list.is_empty());
        let default_types = || DEFAULT_TYPES.map(TypePattern::new).to_vec();
        Ok(Machine {
            class,
            usage: self.usage.unwrap_or_else(|| runner.map_or(Usage::OnDemand, usage_of)),
            allowed_types: self.allowed_types.clone().or(families).unwrap_or_else(default_types),
        })
    }

    fn of_runner(&self, name: &ClassName, config: &Config) -> Result<RunnerClass, UsageError> {
        let spec = LabelSpec { runner: Some(name.clone()), ..LabelSpec::default() };
        match resolve(&spec, &config.catalogue()) {
            Ok(Resolved { class, .. }) => Ok(class.class().clone()),
            Err(error) => Err(self.refuse(name, &format!("cannot be used: {error}"))),
        }
    }

    fn of_table(
        &self,
        name: &ClassName,
        config: Option<&Config>,
    ) -> Result<RunnerClass, UsageError> {
        let runners: Vec<&ClassName> =
            config.map(|config| config.runners.keys().collect()).unwrap_or_default();
        let classes = if runners.is_empty() && self.table.is_empty() {
            RunnerClass::defaults()
        } else {
            self.table.clone()
        };
        let found = classes.iter().find(|class| class.name == *name);
        found.cloned().ok_or_else(|| {
            let known = runners.into_iter().chain(classes.iter().map(|class| &class.name));
            let known: Vec<&str> = known.map(ClassName::as_str).collect();
            let near = spelling::nearest(name.as_str(), known.iter().copied());
            let (hint, known) = (spelling::hint(&near), known.join(", "));
            self.refuse(name, &format!("is not a known class{hint} (known: {known})"))
        })
    }

    fn refuse(&self, name: &ClassName, why: &str) -> UsageError {
        let place = self.class.as_ref().map_or("--resource-class", |given| given.place.as_str());
        let default = if self.class.is_none() { ", which is the default," } else { "" };
        UsageError::new(format!("{place}: {}{default} {why}", shown(name.as_str())))
    }
}

fn usage_of(runner: &RunnerConfig) -> Usage {
    runner.usage.unwrap_or(match runner.spot {
        None | Some(Spot::Never) => Usage::OnDemand,
        Some(_) => Usage::Spot,
    })
}

/// Reads the table: `{ "large": { "cpu": 2, "mmem": 4096 }, … }`. Two classes may have the same
/// vCPU or the same memory.
pub(crate) fn table(given: &Given) -> Result<Vec<RunnerClass>, UsageError> {
    let Pairs(classes) = serde_json::from_str(given.word()).map_err(|error| {
        let form = "{\"large\":{\"cpu\":2,\"mmem\":4096}}";
        given.refuse(format!("a JSON object of classes such as {form}: {error}"))
    })?;
    if classes.is_empty() || classes.len() > CLASSES_MAX {
        let count = classes.len();
        let why = format!("has {count} classes; there must be from 1 to {CLASSES_MAX}");
        return Err(given.refuse_unseen(&why));
    }
    let mut table: Vec<RunnerClass> = Vec::with_capacity(classes.len());
    for (name, fields) in &classes {
        let class = class(given, name, fields)?;
        if table.iter().any(|known| known.name == class.name) {
            return Err(given.refuse_unseen(&format!("class {} is there twice", shown(name))));
        }
        table.push(class);
    }
    Ok(table)
}

fn class(given: &Given, name: &str, fields: &Value) -> Result<RunnerClass, UsageError> {
    let refuse = |why: String| Err(given.refuse_unseen(&format!("class {}: {why}", shown(name))));
    let legal = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    if name.is_empty() || !name.chars().all(legal) {
        return refuse("a name is made of letters, digits, `.`, `_`, `-`".to_owned());
    }
    let Value::Object(fields) = fields else {
        return refuse("it must be an object with cpu and mmem".to_owned());
    };
    if let Some(unknown) = fields.keys().find(|key| KEYS.iter().all(|(known, _)| known != key)) {
        let near = spelling::nearest(unknown, KEYS.iter().map(|(known, _)| *known));
        let hint = spelling::hint(&near);
        return refuse(format!(
            "there is no key {}; the keys are cpu and mmem{hint}",
            shown(unknown)
        ));
    }
    let mut amounts = [0; KEYS.len()];
    for (amount, (key, range)) in amounts.iter_mut().zip(&KEYS) {
        let Some(value) = fields.get(*key) else {
            return refuse(format!("{key} is missing; it must be {}", whole_is(range)));
        };
        let Some(read) = amount_of(value, range) else {
            return refuse(format!("{key}: {} is not {}", shown_json(value), whole_is(range)));
        };
        *amount = read;
    }
    let [vcpu, memory_mib_min] = amounts;
    Ok(RunnerClass {
        name: ClassName::new(name),
        vcpu: VcpuRange::exactly(vcpu),
        memory_mib_min,
        architecture: Architecture::X64,
        scripts: Scripts::default(),
        base: Box::default(),
    })
}

/// A number, or a text of digits.
fn amount_of(value: &Value, range: &RangeInclusive<u32>) -> Option<u32> {
    match value {
        Value::Number(written) => number(&written.to_string(), range),
        Value::String(text) => number(text.trim(), range),
        _ => None,
    }
}

fn shown_json(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        other => shown(&other.to_string()).trim_matches('"').to_owned(),
    }
}

/// An object's members in their order, with repeated names: JSON allows them, and `serde_json`'s
/// map keeps only the last.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Members)
    }
}
