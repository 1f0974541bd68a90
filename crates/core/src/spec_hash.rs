//! The spec hash: a digest of all settings that shape a machine, to tell whether an existing
//! machine equals a machine launched now.
//!
//! It is written `<version>:<digest>`. Only hashes of equal versions are compared: an upgrade of
//! ours that digests other fields must not replace every machine. The hash of a machine without a
//! pool has two digests: the stack's, and its class's if the class adds a setting. A pool's name,
//! schedule, zone and counts shape no machine and are not digested. The encoding is fixed here
//! (`Encoder`), because a serializer's output could change with the serializer.
//!
//! Not here: resolving an image, or handling drift (`pool`).

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::class::{BootSource, RunnerClass, Scripts};
use crate::config::image::usual;
use crate::ids::{ImageName, SpecHash};

/// The version of hashes of a pool's machines. Raise it when a field is removed or retyped, gets a
/// new default, or is added in such a way that existing machines have it already.
pub const SPEC_HASH_VERSION: u16 = 1;
/// The same for machines without a pool. Version 1 did not digest the class.
pub const CLASS_HASH_VERSION: u16 = 2;

/// All settings that shape a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    /// The runner's configuration.
    pub runner: HashedRunner,
    /// The image's id in the cloud, with every alias resolved.
    pub image: String,
    /// The version of GitHub's runner program.
    pub runner_version: String,
    /// The pool's settings, if a pool launched the machine.
    pub pool: Option<PoolSpec>,
}

/// The part of a runner's configuration that shapes a machine. `retry` is absent, because it shapes
/// no machine; lists are sets, because their order shapes none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashedRunner {
    /// The minimum and the maximum of vCPUs, in thousandths.
    pub vcpu_milli: Option<(u32, u32)>,
    /// The minimum and the maximum of memory, in MiB.
    pub memory_mib: Option<(u32, u32)>,
    /// The processor architecture.
    pub architecture: Option<String>,
    /// Patterns over machine types.
    pub families: BTreeSet<String>,
    /// The volume, written in one fixed order.
    pub volume: Option<String>,
    /// The volume that outlives the machine, written in one fixed order.
    pub sticky: Option<String>,
    /// Whether, and how, to use spot capacity.
    pub spot: Option<String>,
    /// Additions such as caches.
    pub extras: BTreeSet<String>,
    /// The cloud's tags.
    pub tags: BTreeSet<String>,
    /// Whether people may log in by SSH.
    pub ssh: Option<bool>,
    /// Whether it has no public address.
    pub private: Option<bool>,
    /// Whether it is kept after a failure.
    pub debug: Option<bool>,
    /// Whether it can run virtual machines.
    pub nested_virt: Option<bool>,
    /// A script for the first boot.
    pub preinstall: Option<String>,
    /// A script for every boot.
    pub prerun: Option<String>,
}

/// The pool's fields that shape a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpec {
    /// The runner of its machines.
    pub runner: String,
    /// The stack it belongs to.
    pub env: String,
    /// A marker that the operator changes to replace every machine.
    pub version: Option<String>,
}

/// The hash of this machine, in the newest version.
pub fn spec_hash(spec: &MachineSpec) -> SpecHash {
    let version = if spec.pool.is_some() { SPEC_HASH_VERSION } else { CLASS_HASH_VERSION };
    SpecHash::new(format!("{version}:{}", digest_hex(&encoded(spec))))
}

/// The hash of a machine of this class without a pool, in a stack with the hash `built_from`.
/// `images` maps names of images to the cloud's ids.
pub fn of_class(
    built_from: &SpecHash,
    class: &RunnerClass,
    images: &BTreeMap<ImageName, String>,
) -> SpecHash {
    let added = added(class, images);
    if added.is_empty() || parts(built_from).is_none() {
        return built_from.clone();
    }
    SpecHash::new(format!("{built_from}{}", digest_hex(&added)))
}

/// Whether a machine without a pool has an older stack's hash than `built_from`, regardless of its
/// class.
pub fn is_outdated(seen: &SpecHash, built_from: &SpecHash) -> bool {
    match (parts(seen), parts(built_from)) {
        (Some((seen_version, seen)), Some((version, digest))) => {
            seen_version == version && !seen.starts_with(digest)
        }
        _ => false,
    }
}

/// The SHA-256 of these bytes, in hexadecimal.
pub fn digest_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Whether a machine with the hash `seen` differs from the wanted machine. Hashes of different
/// versions, and texts that are no hash, never count as drift.
pub fn drifted(seen: &SpecHash, want: &SpecHash) -> bool {
    match (parts(seen), parts(want)) {
        (Some((seen_version, seen)), Some((want_version, want))) => {
            seen_version == want_version && seen != want
        }
        _ => false,
    }
}

fn parts(hash: &SpecHash) -> Option<(u16, &str)> {
    let (version, digest) = hash.as_str().split_once(':')?;
    let hex = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((version.parse().ok()?, digest)).filter(|_| hex)
}

/// Encodes the fields to digest.
fn encoded(spec: &MachineSpec) -> Vec<u8> {
    let mut out = Encoder(Vec::new());
    let HashedRunner {
        vcpu_milli,
        memory_mib,
        architecture,
        families,
        volume,
        sticky,
        spot,
        extras,
        tags,
        ssh,
        private,
        debug,
        nested_virt,
        preinstall,
        prerun,
    } = &spec.runner;
    // A field keeps its number for ever; no other field ever gets it.
    out.range(1, *vcpu_milli);
    out.range(2, *memory_mib);
    out.text(3, architecture.as_deref());
    out.set(4, families);
    out.text(5, volume.as_deref());
    out.text(6, sticky.as_deref());
    out.text(7, spot.as_deref());
    out.set(8, extras);
    out.set(9, tags);
    out.flag(10, *ssh);
    out.flag(11, *private);
    out.flag(12, *debug);
    out.flag(13, *nested_virt);
    out.text(14, preinstall.as_deref());
    out.text(15, prerun.as_deref());
    out.text(32, Some(&spec.image));
    out.text(33, Some(&spec.runner_version));
    if let Some(PoolSpec { runner, env, version }) = &spec.pool {
        out.text(48, Some(runner));
        out.text(49, Some(env));
        out.text(50, version.as_deref());
    }
    out.0
}

/// Encodes the settings that a class adds to the stack's; empty if it adds none.
fn added(class: &RunnerClass, images: &BTreeMap<ImageName, String>) -> Vec<u8> {
    let mut out = Encoder(Vec::new());
    let Scripts { image_preinstall, preinstall, image_prerun, prerun } = &class.scripts;
    let BootSource { image, ami, search, root_device, disk_gib_min, volume } = &*class.base;
    let stands_for = images.get(&image.clone().unwrap_or_else(|| usual(class.architecture)));
    out.text(64, image_preinstall.as_deref());
    out.text(65, preinstall.as_deref());
    out.text(66, image_prerun.as_deref());
    out.text(67, prerun.as_deref());
    out.text(80, image.as_ref().map(ImageName::as_str));
    out.text(81, ami.as_deref());
    out.text(82, search.as_ref().map(|search| search.name.as_str()));
    out.text(83, search.as_ref().and_then(|search| search.owner.as_deref()));
    out.text(84, stands_for.map(String::as_str));
    out.text(85, root_device.as_deref());
    out.range(86, disk_gib_min.map(|least| (least, u32::MAX)));
    out.text(87, volume.as_ref().map(ToString::to_string).as_deref());
    out.0
}

/// Writes each field as its number, its length and its value. An absent field is not written, so a
/// new field does not change the hashes of machines without it.
struct Encoder(Vec<u8>);

impl Encoder {
    fn field(&mut self, number: u8, value: &[u8]) {
        self.0.push(number);
        self.0.extend((value.len() as u64).to_be_bytes());
        self.0.extend(value);
    }

    fn text(&mut self, number: u8, value: Option<&str>) {
        if let Some(value) = value {
            self.field(number, value.as_bytes());
        }
    }

    fn flag(&mut self, number: u8, value: Option<bool>) {
        if let Some(value) = value {
            self.field(number, &[u8::from(value)]);
        }
    }

    fn range(&mut self, number: u8, value: Option<(u32, u32)>) {
        if let Some((least, most)) = value {
            self.field(number, &[least.to_be_bytes(), most.to_be_bytes()].concat());
        }
    }

    fn set(&mut self, number: u8, values: &BTreeSet<String>) {
        for value in values {
            self.field(number, value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::ImageSearch;
    use crate::labels::volume::Volume;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn full() -> MachineSpec {
        let text = |text: &str| Some(text.to_owned());
        MachineSpec {
            runner: HashedRunner {
                vcpu_milli: Some((2_000, 4_000)),
                memory_mib: Some((4_096, 8_192)),
                architecture: text("x64"),
                families: set(&["c7a*", "m7a*"]),
                volume: text("80gb:gp3:125mibps:3000iops"),
                sticky: text("cache:40gb"),
                spot: text("price-capacity-optimized"),
                extras: set(&["s3-cache", "tmpfs"]),
                tags: set(&["team=build"]),
                ssh: Some(false),
                private: Some(false),
                debug: Some(false),
                nested_virt: Some(false),
                preinstall: text("true"),
                prerun: text("true"),
            },
            image: "ami-0123456789abcdef0".to_owned(),
            runner_version: "2.330.0".to_owned(),
            pool: Some(PoolSpec {
                runner: "small-x64".to_owned(),
                env: "production".to_owned(),
                version: text("1"),
            }),
        }
    }

    /// If this test fails, an upgrade of ours would replace existing machines: raise the version
    /// instead, and add literals for it.
    #[test]
    fn what_was_hashed_before_is_hashed_alike() {
        let bare = MachineSpec { pool: None, ..full() };
        for (name, spec, expected) in [
            (
                "empty",
                MachineSpec::default(),
                "2:f153b07ea9fd174930d13ec1ccf3a3be0e3361b36635e660588ecc51b890ff39",
            ),
            ("full", full(), "1:6864fc507259ddc96578756b392f2874795e5e05e23eac2e1342a1f2d15e5719"),
            (
                "without a pool",
                bare,
                "2:cf50f65fb7b8979190c4eaca192f3352f0802bd5ceccc67cda55a2dbbf38fc73",
            ),
        ] {
            assert_eq!(spec_hash(&spec).as_str(), expected, "{name}");
        }
    }

    /// A change of any single field changes the hash.
    #[test]
    fn each_field_shapes_a_machine() {
        type Change = fn(&mut MachineSpec);
        let changes: [Change; 20] = [
            |spec| spec.runner.vcpu_milli = Some((2_000, 4_001)),
            |spec| spec.runner.memory_mib = None,
            |spec| spec.runner.architecture = Some("arm64".to_owned()),
            |spec| spec.runner.families = set(&["c7a*"]),
            |spec| spec.runner.volume = None,
            |spec| spec.runner.sticky = None,
            |spec| spec.runner.spot = None,
            |spec| spec.runner.extras = set(&["s3-cachetmpfs"]),
            |spec| spec.runner.tags = set(&[]),
            |spec| spec.runner.ssh = Some(true),
            |spec| spec.runner.private = Some(true),
            |spec| spec.runner.debug = Some(true),
            |spec| spec.runner.nested_virt = None,
            |spec| spec.runner.preinstall = Some("truetrue".to_owned()),
            |spec| spec.runner.prerun = Some(String::new()),
            |spec| spec.image = "ami-0123456789abcdef1".to_owned(),
            |spec| spec.runner_version = "2.330.1".to_owned(),
            |spec| spec.pool.as_mut().unwrap().runner = "other".to_owned(),
            |spec| spec.pool.as_mut().unwrap().env = "dev".to_owned(),
            |spec| spec.pool.as_mut().unwrap().version = None,
        ];
        let mut hashes = BTreeSet::from([spec_hash(&full())]);
        for (index, change) in changes.into_iter().enumerate() {
            let mut spec = full();
            change(&mut spec);
            assert!(hashes.insert(spec_hash(&spec)), "change {index} is not seen");
        }
    }

    /// Text that moves from one field to its neighbour changes the hash.
    #[test]
    fn fields_do_not_run_into_each_other() {
        let with = |preinstall: &str, prerun: &str| MachineSpec {
            runner: HashedRunner {
                preinstall: Some(preinstall.to_owned()),
                prerun: Some(prerun.to_owned()),
                ..HashedRunner::default()
            },
            ..MachineSpec::default()
        };
        assert_ne!(spec_hash(&with("ab", "c")), spec_hash(&with("a", "bc")));
    }

    fn plain() -> RunnerClass {
        RunnerClass::defaults().remove(0)
    }

    fn images(ami: &str) -> BTreeMap<ImageName, String> {
        BTreeMap::from([(ImageName::new("ubuntu24-full-x64"), ami.to_owned())])
    }

    /// A change of any single setting of a class changes the hash.
    #[test]
    fn what_a_class_adds_shapes_a_machine() {
        type Change = fn(&mut RunnerClass);
        let text = |text: &str| Some(text.to_owned());
        let mut class = plain();
        class.scripts = Scripts {
            image_preinstall: text("a"),
            preinstall: text("b"),
            image_prerun: text("c"),
            prerun: text("d"),
        };
        *class.base = BootSource {
            image: Some(ImageName::new("mine")),
            ami: text("ami-1"),
            search: Some(ImageSearch { name: "x*".to_owned(), owner: text("1") }),
            root_device: text("/dev/sda1"),
            disk_gib_min: Some(8),
            volume: Some(Volume { size_gb: Some(40), ..Volume::default() }),
        };
        let changes: [Change; 13] = [
            |class| class.scripts.image_preinstall = None,
            |class| class.scripts.preinstall = None,
            |class| class.scripts.image_prerun = None,
            |class| class.scripts.prerun = Some("e".to_owned()),
            |class| class.scripts = Scripts::default(),
            |class| class.base.image = None,
            |class| class.base.ami = Some("ami-2".to_owned()),
            |class| class.base.search = None,
            |class| class.base.search.as_mut().unwrap().owner = None,
            |class| class.base.root_device = None,
            |class| class.base.disk_gib_min = Some(9),
            |class| class.base.volume = None,
            |class| *class.base = BootSource::default(),
        ];
        let stack = SpecHash::new("2:aa");
        let mut hashes = BTreeSet::from([of_class(&stack, &class, &images("ami-0"))]);
        for (index, change) in changes.into_iter().enumerate() {
            let mut class = class.clone();
            change(&mut class);
            let hash = of_class(&stack, &class, &images("ami-0"));
            assert!(parts(&hash).is_some(), "{hash}");
            assert!(hashes.insert(hash), "change {index} is not seen");
        }
        for hash in &hashes {
            assert!(!is_outdated(hash, &stack) && is_outdated(hash, &SpecHash::new("2:ab")));
            assert!(
                !is_outdated(hash, &SpecHash::new("1:ab")),
                "hashes of other versions are not compared"
            );
            assert!(
                drifted(hash, &stack) && drifted(&stack, hash),
                "the class's part was added or removed"
            );
        }
    }

    #[test]
    fn a_class_that_adds_nothing_has_what_every_machine_has() {
        let stack = SpecHash::new("2:aa");
        assert_eq!(of_class(&stack, &plain(), &BTreeMap::new()), stack);
        let [one, other] = ["ami-1", "ami-2"].map(|ami| of_class(&stack, &plain(), &images(ami)));
        assert!(drifted(&one, &other), "the usual image's name resolves to another AMI");
        let none = SpecHash::new("no hash");
        assert_eq!(of_class(&none, &plain(), &images("ami-1")), none);
    }

    #[test]
    fn only_hashes_of_one_version_are_compared() {
        let drift = |seen: &str, want: &str| drifted(&SpecHash::new(seen), &SpecHash::new(want));
        assert!(drift("1:aa", "1:ab"));
        assert!(!drift("1:aa", "1:aa"));
        for other in ["2:ab", "ab", "", ":ab", "1:", "x:ab", "1:xyz", "70000:ab"] {
            assert!(!drift("1:aa", other) && !drift(other, "1:aa"), "{other}");
        }
    }
}
