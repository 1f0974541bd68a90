//! From what a label asks for to a runner class: a named one if it is one, else an anonymous one.
//!
//! An *anonymous* class has no queue and no reuse: its machines are started cold and serve one
//! owner. RunsOn's built-in runner names, such as `2cpu-linux-x64`, are anonymous classes, unless the
//! configuration names a runner so. A request that asks for exactly what a named class is, is
//! served as that class. Equal means everything that shapes a machine; where one says something and
//! the other leaves it to the stack they are not equal, which costs a cold start and never hands
//! out the wrong machine. How a machine is paid for and when a job is tried again are the request's,
//! not the class's.
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

/// vCPUs of a machine of which nothing was said.
pub const CPU_DEFAULT: u32 = 2;

/// What a configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Its runners and resource classes, each as a label would say it.
    pub runners: BTreeMap<ClassName, LabelSpec>,
    /// Its images, with their architecture.
    pub images: BTreeMap<String, Architecture>,
    /// What machines of its runners run before they take jobs, where that is said.
    pub scripts: BTreeMap<ClassName, Scripts>,
    /// What machines boot from whose image is one of these.
    pub bases: BTreeMap<String, BootSource>,
}

impl Catalogue {
    /// Classes that only have a size. Memory is kept in thousandths of a GiB: multiples of 128 MiB
    /// stay what they are, others lose less than 2 MiB.
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

/// A class, and whether it has a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassRef {
    /// One that the configuration names.
    Named(RunnerClass),
    /// One of nobody's, made for this request.
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

/// What was asked for, completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The class.
    pub class: ClassRef,
    /// What the label says over what its runner says.
    pub spec: LabelSpec,
}

/// Why there is no such class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A runner that nobody named.
    #[error("there is no runner {name:?}{}", spelling::hint(.suggestions))]
    UnknownRunner {
        /// The name.
        name: String,
        /// Those it resembles.
        suggestions: Vec<String>,
    },
    /// An image that nobody named.
    #[error("there is no image {name:?}{}", spelling::hint(.suggestions))]
    UnknownImage {
        /// The name.
        name: String,
        /// Those it resembles.
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

/// The class that a label asks for.
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
    // A runner that is named and not modified is itself, even if another one equals it.
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

/// What a machine boots from. An image's id says more than its name.
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

/// What a built-in runner's name says: `2cpu-linux-x64`.
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

/// Everything that shapes a machine, in one comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    vcpu: VcpuRange,
    memory_mib_min: u32,
    memory_mib_max: Option<u32>,
    architecture: Architecture,
    /// The rest, as pairs in their fixed order.
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

    /// A class of this shape, without scripts, which belong to names, and without what it boots from.
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

    /// Equal shapes have equal names. No configured name has a `~`.
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
        // A fraction is a share of a machine, and machines are whole.
        Some(cpu) => {
            VcpuRange { min: cpu.min_milli.div_ceil(1_000), max: cpu.max_milli.div_ceil(1_000) }
        }
        // Whole types have as many as they have; the default would contradict most of them.
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
