//! Resolves a label's settings to a runner class: a named class if one matches, else an anonymous
//! one.
//!
//! Machines of an *anonymous* class are always launched new and serve one owner; the class has no
//! queue. RunsOn's built-in runner names, such as `2cpu-linux-x64`, are anonymous classes unless
//! the configuration has a runner of that name. Settings match a named class only if all settings
//! that shape a machine are equal; a setting that only one of the two has is a difference. That may
//! cost a launch but never gives a job the wrong machine. `spot` and `retry` belong to the request.
//!
//! Not here: reading runners from a configuration (`config`), or images' ids.

use std::collections::BTreeMap;

use super::LabelSpec;
use super::value::{AMOUNT_MAX, AmountRange};
use crate::class::{Architecture, BootSource, RunnerClass, Scripts, VcpuRange};
use crate::config::image;
use crate::ids::{ClassName, ImageName};
use crate::spec_hash::digest_hex;
use crate::spelling;

/// The vCPUs of a machine if the label does not say.
pub const CPU_DEFAULT: u32 = 2;

/// The runners and images that the configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Runners and resource classes, each in the form of a label's settings.
    pub runners: BTreeMap<ClassName, LabelSpec>,
    /// Images, with their architecture.
    pub images: BTreeMap<String, Architecture>,
    /// The scripts that machines of a runner execute before they take jobs, for runners that have
    /// some.
    pub scripts: BTreeMap<ClassName, Scripts>,
    /// The boot source of each image.
    pub bases: BTreeMap<String, BootSource>,
}

impl Catalogue {
    /// A catalogue of classes that have only a size. Memory is kept in thousandths of a GiB:
    /// multiples of 128 MiB stay exact, other amounts lose less than 2 MiB.
    pub fn of_classes(classes: &[RunnerClass]) -> Self {
        let runners = classes.iter().map(|class| {
            let vcpu = VcpuRange {
                min: class.vcpu.min.min(AMOUNT_MAX),
                max: class.vcpu.max.min(AMOUNT_MAX),
            };
            let memory = u64::from(class.memory_mib_min) * 1_000 / 1_024;
            let memory = u32::try_from(memory).unwrap_or(u32::MAX);
            let spec = LabelSpec {
                cpu: Some(AmountRange { min_milli: vcpu.min * 1_000, max_milli: vcpu.max * 1_000 }),
                ram: Some(AmountRange { min_milli: memory, max_milli: memory }),
                architecture: Some(class.architecture),
                ..LabelSpec::default()
            };
            (class.name.clone(), spec)
        });
        Self { runners: runners.collect(), ..Self::default() }
    }
}

/// A class, and whether the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassRef {
    /// A class that the configuration names.
    Named(RunnerClass),
    /// A class made for this request alone.
    Anonymous(RunnerClass),
}

impl ClassRef {
    /// The class itself.
    pub const fn class(&self) -> &RunnerClass {
        match self {
            Self::Named(class) | Self::Anonymous(class) => class,
        }
    }
}

/// A class with the complete settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The class.
    pub class: ClassRef,
    /// The label's settings, completed by those of the runner that it names.
    pub spec: LabelSpec,
}

/// Why a label's settings have no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No configured or built-in runner has this name.
    #[error("there is no runner {name:?}{}", spelling::hint(.suggestions))]
    UnknownRunner {
        /// The name.
        name: String,
        /// Similar names.
        suggestions: Vec<String>,
    },
    /// No configured or built-in image has this name.
    #[error("there is no image {name:?}{}", spelling::hint(.suggestions))]
    UnknownImage {
        /// The name.
        name: String,
        /// Similar names.
        suggestions: Vec<String>,
    },
    /// A runner of one architecture with an image of another.
    #[error("image {image:?} is for {}, the runner is {}", .image_is.as_str(), .runner_is.as_str())]
    Architecture {
        /// The image.
        image: String,
        /// Its architecture.
        image_is: Architecture,
        /// The runner's.
        runner_is: Architecture,
    },
}

/// Resolves the class that a label asks for.
pub fn resolve(spec: &LabelSpec, catalogue: &Catalogue) -> Result<Resolved, ResolveError> {
    let named = match &spec.runner {
        None => None,
        Some(name) => match catalogue.runners.get(name) {
            Some(runner) => Some((Some(name), runner.clone())),
            None => Some((None, builtin(name).ok_or_else(|| unknown_runner(name, catalogue))?)),
        },
    };
    let full = named.as_ref().map_or_else(|| spec.clone(), |(_, base)| spec.over(base));
    let shape = Shape::of(&full, catalogue)?;
    // A named runner that the label does not modify wins over other runners with equal settings.
    let own = named.as_ref().and_then(|&(name, ref base)| Some((name?, base)));
    for (name, runner) in own.into_iter().chain(&catalogue.runners) {
        if Shape::of(runner, catalogue).as_ref() == Ok(&shape) {
            let scripts = catalogue.scripts.get(name).cloned().unwrap_or_default();
            let base = Box::new(base(&full, catalogue));
            let class = RunnerClass { scripts, base, ..shape.class(name.clone()) };
            return Ok(Resolved { class: ClassRef::Named(class), spec: full });
        }
    }
    let class = RunnerClass { base: Box::new(base(&full, catalogue)), ..shape.class(shape.name()) };
    Ok(Resolved { class: ClassRef::Anonymous(class), spec: full })
}

/// The boot source of a machine. The `ami` of a label wins over its image's.
fn base(spec: &LabelSpec, catalogue: &Catalogue) -> BootSource {
    let named = spec.image.as_ref().map(|name| {
        let known = catalogue.bases.get(name).cloned().unwrap_or_default();
        BootSource { image: Some(ImageName::new(name)), ..known }
    });
    let mut base = named.unwrap_or_default();
    if spec.ami.is_some() {
        base.ami.clone_from(&spec.ami);
    }
    base.volume = spec.volume;
    base
}

/// The settings that a built-in runner's name stands for, such as `2cpu-linux-x64`.
pub fn builtin(name: &ClassName) -> Option<LabelSpec> {
    let (count, rest) = name.as_str().split_once("cpu-linux-")?;
    let architecture = Architecture::parse(rest)?;
    let plain = (1..=4).contains(&count.len())
        && !count.starts_with('0')
        && count.bytes().all(|b| b.is_ascii_digit());
    let count: u32 = count.parse().ok().filter(|_| plain)?;
    Some(LabelSpec {
        cpu: Some(AmountRange::exactly(count)),
        architecture: Some(architecture),
        ..LabelSpec::default()
    })
}

fn unknown_runner(name: &ClassName, catalogue: &Catalogue) -> ResolveError {
    const USUAL: [&str; 4] =
        ["2cpu-linux-x64", "4cpu-linux-x64", "2cpu-linux-arm64", "4cpu-linux-arm64"];
    let known = catalogue.runners.keys().map(ClassName::as_str).chain(USUAL);
    let suggestions = spelling::nearest(name.as_str(), known);
    ResolveError::UnknownRunner {
        name: name.to_string(),
        suggestions: suggestions.into_iter().map(str::to_owned).collect(),
    }
}

/// All settings that shape a machine, in one comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    vcpu: VcpuRange,
    memory_mib_min: u32,
    memory_mib_max: Option<u32>,
    architecture: Architecture,
    /// The other settings, as pairs in their fixed order.
    rest: Vec<(super::LabelKey, String)>,
}

impl Shape {
    fn of(spec: &LabelSpec, catalogue: &Catalogue) -> Result<Self, ResolveError> {
        let ram = spec.ram.map_or((0, None), |ram| {
            let most = (ram.min_milli != ram.max_milli).then(|| mib(ram.max_milli));
            (mib(ram.min_milli), most)
        });
        let rest = LabelSpec {
            runner: None,
            cpu: None,
            ram: None,
            spot: None,
            retry: None,
            ..spec.clone()
        };
        Ok(Self {
            vcpu: vcpu(spec),
            memory_mib_min: ram.0,
            memory_mib_max: ram.1,
            architecture: architecture(spec, catalogue)?,
            rest: rest.pairs(),
        })
    }

    /// A class of this shape, without a boot source and without scripts, which belong to named
    /// classes.
    fn class(&self, name: ClassName) -> RunnerClass {
        RunnerClass {
            name,
            vcpu: self.vcpu,
            memory_mib_min: self.memory_mib_min,
            architecture: self.architecture,
            scripts: Scripts::default(),
            base: Box::default(),
        }
    }

    /// A name for an anonymous class. Equal shapes have equal names; no configured name has a `~`.
    fn name(&self) -> ClassName {
        use std::fmt::Write as _;
        let Self { vcpu, memory_mib_min, memory_mib_max, architecture, rest } = self;
        let mut text = format!("{}+{}/{memory_mib_min}", vcpu.min, vcpu.max);
        let _ = write!(text, "+{}/{}", memory_mib_max.unwrap_or(0), architecture.as_str());
        for (key, value) in rest {
            let _ = write!(text, "/{key}={value}");
        }
        let digest = digest_hex(text.as_bytes());
        ClassName::new(format!("~{}cpu-{}-{}", vcpu.min, architecture.as_str(), &digest[..16]))
    }
}

fn vcpu(spec: &LabelSpec) -> VcpuRange {
    let exact = |pattern: &crate::request::TypePattern| !pattern.as_str().contains('*');
    match spec.cpu {
        // A fraction asks for a part of a machine; the job gets the whole machine.
        Some(cpu) => {
            VcpuRange { min: cpu.min_milli.div_ceil(1_000), max: cpu.max_milli.div_ceil(1_000) }
        }
        // Complete types fix their vCPUs themselves; the default would contradict most of them.
        None if !spec.families.is_empty() && spec.families.iter().all(exact) => {
            VcpuRange { min: 1, max: AMOUNT_MAX }
        }
        None => VcpuRange::exactly(CPU_DEFAULT),
    }
}

fn mib(gib_milli: u32) -> u32 {
    u32::try_from((u64::from(gib_milli) * 1_024).div_ceil(1_000)).unwrap_or(u32::MAX)
}

fn architecture(spec: &LabelSpec, catalogue: &Catalogue) -> Result<Architecture, ResolveError> {
    let Some(name) = &spec.image else {
        return Ok(spec.architecture.unwrap_or(Architecture::X64));
    };
    let builtin = || {
        let known = image::is_built_in(name);
        known.then(|| Architecture::parse(name.rsplit('-').next()?)).flatten()
    };
    let of_image = catalogue.images.get(name).copied().or_else(builtin).ok_or_else(|| {
        let known = catalogue.images.keys().map(String::as_str).chain(image::BUILT_IN);
        let suggestions = spelling::nearest(name, known);
        ResolveError::UnknownImage {
            name: name.clone(),
            suggestions: suggestions.into_iter().map(str::to_owned).collect(),
        }
    })?;
    match spec.architecture {
        Some(runner_is) if runner_is != of_image => {
            let (image, image_is) = (name.clone(), of_image);
            Err(ResolveError::Architecture { image, image_is, runner_is })
        }
        _ => Ok(of_image),
    }
}
