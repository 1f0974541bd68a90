//! `images:` of `runs-on.yml`, and the image names that always exist.
//!
//! Not here: which AMI a built-in name stands for (`stack`).

use super::finding::Findings;
use super::node::Node;
use super::read::{MappingShape, choice, count, ignored, mapping, text, used};
use super::script;
use crate::class::{Architecture, BootSource, ImageSearch};
use crate::ids::ImageName;

/// The keys of an image.
pub const IMAGE: MappingShape = MappingShape {
    name: "an image",
    keys: &[
        used("ami"),
        used("platform"),
        used("arch"),
        used("name"),
        used("owner"),
        used("preinstall"),
        used("prerun"),
        used("main_disk_size"),
        used("root_device_name"),
        ignored("id", "an image is known by its name"),
        ignored("tags", "an image is found by `ami`, or by `name` and `owner`"),
    ],
};

/// The operating system of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux.
    Linux,
    /// Windows, which standby pools do not support.
    Windows,
}

/// An entry of `images:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// The AMI's id, if the entry names one.
    pub ami: Option<String>,
    /// The operating system.
    pub platform: Platform,
    /// The processor architecture.
    pub architecture: Architecture,
    /// The AMI's name, with `*` as a wildcard; the newest match is used.
    pub name: Option<String>,
    /// The account that owns the AMI.
    pub owner: Option<String>,
    /// A script that runs once per machine.
    pub preinstall: Option<String>,
    /// A script that runs at each boot.
    pub prerun: Option<String>,
    /// The smallest root disk, in GiB.
    pub main_disk_size_gib: Option<u32>,
    /// The device name of the root disk.
    pub root_device_name: Option<String>,
}

impl ImageConfig {
    /// What a machine with this image boots from, without the image's name.
    pub fn base(&self) -> BootSource {
        let search = |name: &String| ImageSearch { name: name.clone(), owner: self.owner.clone() };
        BootSource {
            image: None,
            ami: self.ami.clone(),
            search: self.name.as_ref().map(search),
            root_device: self.root_device_name.clone(),
            disk_gib_min: self.main_disk_size_gib,
            volume: None,
        }
    }
}

/// The names of RunsOn's own images.
pub const BUILT_IN: [&str; 20] = [
    "ubuntu22-full-x64",
    "ubuntu22-full-arm64",
    "ubuntu22-base-x64",
    "ubuntu22-base-arm64",
    "ubuntu22-gpu-x64",
    "ubuntu22-gpu-arm64",
    "ubuntu24-full-x64",
    "ubuntu24-full-arm64",
    "ubuntu24-base-x64",
    "ubuntu24-base-arm64",
    "ubuntu24-gpu-x64",
    "ubuntu24-gpu-arm64",
    "ubuntu26-full-x64",
    "ubuntu26-full-arm64",
    "ubuntu26-base-x64",
    "ubuntu26-base-arm64",
    "ubuntu26-gpu-x64",
    "ubuntu26-gpu-arm64",
    "windows22-full-x64",
    "windows22-base-x64",
];

/// Whether this is the name of one of RunsOn's own images.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name)
}

/// The default image of a class that names none.
pub fn usual(architecture: Architecture) -> ImageName {
    ImageName::new(format!("ubuntu24-full-{}", architecture.as_str()))
}

/// The platform and architecture of a built-in image, both taken from its name.
pub fn built_in_platform(name: &str) -> (Platform, Architecture) {
    let platform = if name.starts_with("windows") { Platform::Windows } else { Platform::Linux };
    let architecture =
        if name.ends_with("-arm64") { Architecture::Arm64 } else { Architecture::X64 };
    (platform, architecture)
}

/// Reads one image.
pub(super) fn read(
    node: &Node,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Option<ImageConfig> {
    let fields = mapping(node, &IMAGE, others, findings)?;
    let mut text_of = |key: &str| {
        let node = fields.get(key)?;
        text(node, key, findings).map(str::to_owned)
    };
    let (ami, name, owner) = (text_of("ami"), text_of("name"), text_of("owner"));
    let root_device_name = text_of("root_device_name");
    let preinstall = script::read(&fields, "preinstall", findings);
    let prerun = script::read(&fields, "prerun", findings);
    if let (Some(ami), Some(node)) = (&ami, fields.get("ami"))
        && !is_ami(ami)
    {
        let message = format!("{} is no AMI id", super::read::shown(ami));
        findings
            .error(node.mark, "bad-ami", message)
            .instead("write it as `ami-0123456789abcdef0`");
    }
    if fields.get("ami").is_none() && fields.get("name").is_none() {
        let message = "an image has neither `ami` nor `name`: nothing can boot from it";
        findings.warning(fields.mark, "image-without-ami", message);
    }
    let platforms = [("linux", Platform::Linux), ("windows", Platform::Windows)];
    let architectures = [("x64", Architecture::X64), ("arm64", Architecture::Arm64)];
    let platform = fields
        .get("platform")
        .and_then(|node| choice(node, "platform", &platforms, findings))
        .unwrap_or(Platform::Linux);
    let architecture = fields
        .get("arch")
        .and_then(|node| choice(node, "arch", &architectures, findings))
        .unwrap_or(Architecture::X64);
    let size = fields.get("main_disk_size");
    Some(ImageConfig {
        ami,
        platform,
        architecture,
        name,
        owner,
        preinstall,
        prerun,
        main_disk_size_gib: size.and_then(|node| count(node, "main_disk_size", findings)),
        root_device_name,
    })
}

/// Whether a text has the form of an AMI's id.
pub(super) fn is_ami(text: &str) -> bool {
    let hex = |digits: &str| {
        [8, 17].contains(&digits.len())
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    text.strip_prefix("ami-").is_some_and(hex)
}
