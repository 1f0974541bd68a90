//! Volumes: a machine's own, and volumes that outlive it.
//!
//! Not here: the other values (`value`), or the policy's limits (`policy`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::value::{ValueError, parse_name, short, words};

/// The size of the largest EBS volume, in GB.
pub const VOLUME_GB_MAX: u32 = 65_536;
/// More MiB or operations a second than any volume does.
pub const VOLUME_RATE_MAX: u32 = 1_000_000;

words! {
    /// A kind of volume.
    VolumeKind {
        /// General purpose, third generation.
        Gp3 = "gp3",
        /// General purpose, second generation.
        Gp2 = "gp2",
        /// Provisioned, first generation.
        Io1 = "io1",
        /// Provisioned, second generation.
        Io2 = "io2",
        /// Throughput-optimised, on hard disks.
        St1 = "st1",
        /// Cold, on hard disks.
        Sc1 = "sc1",
        /// Magnetic, the oldest generation.
        Standard = "standard",
    }
}

/// A volume; the stack decides about absent settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Volume {
    /// Its size in GB.
    pub size_gb: Option<u32>,
    /// Its kind.
    pub kind: Option<VolumeKind>,
    /// Its throughput in MiB a second.
    pub throughput_mibps: Option<u32>,
    /// Its operations a second.
    pub iops: Option<u32>,
}

/// Stored in the form of a label.
impl TryFrom<String> for Volume {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        Self::parse(&text)
    }
}

impl From<Volume> for String {
    fn from(volume: Volume) -> Self {
        volume.to_string()
    }
}

impl Volume {
    /// Reads the parts of a volume, in any order, each at most once.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let mut volume = Self::default();
        text.split(':').try_for_each(|part| volume.take(part))?;
        Ok(volume)
    }

    fn take(&mut self, part: &str) -> Result<(), ValueError> {
        let wrong = || ValueError::VolumePart(short(part));
        let lower = part.to_ascii_lowercase();
        if let Some(kind) = VolumeKind::find(&lower) {
            return once(&mut self.kind, kind, part, "type");
        }
        let unit_at = lower.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = lower.split_at(unit_at);
        if number.is_empty() {
            return Err(wrong());
        }
        let most = match unit {
            "gb" | "gib" => VOLUME_GB_MAX,
            "mibps" | "mbps" | "mbs" | "iops" => VOLUME_RATE_MAX,
            _ => return Err(wrong()),
        };
        let number = match number.parse::<u32>() {
            Ok(0) => return Err(wrong()),
            Ok(number) if number <= most => number,
            _ => return Err(ValueError::TooLarge { asked: short(part), most }),
        };
        match unit {
            "gb" | "gib" => once(&mut self.size_gb, number, part, "size"),
            "mibps" | "mbps" | "mbs" => {
                once(&mut self.throughput_mibps, number, part, "throughput")
            }
            _ => once(&mut self.iops, number, part, "iops"),
        }
    }
}

fn once<T>(
    slot: &mut Option<T>,
    value: T,
    part: &str,
    what: &'static str,
) -> Result<(), ValueError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ValueError::VolumeTwice(short(part), what)),
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.size_gb.map(|size| format!("{size}gb")),
            self.kind.map(|kind| kind.as_str().to_owned()),
            self.throughput_mibps.map(|rate| format!("{rate}mibps")),
            self.iops.map(|iops| format!("{iops}iops")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(":"))
    }
}

/// A volume that outlives the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyVolume {
    /// Its name, to tell several apart.
    pub name: Option<String>,
    /// Its settings; the size is always present.
    pub volume: Volume,
    /// Whether its blocks are loaded only when they are first read.
    pub lazy_init: bool,
}

impl StickyVolume {
    /// Reads `[name:]size[:type:…][:lazy-init]`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let mut sticky = Self { name: None, volume: Volume::default(), lazy_init: false };
        for (index, part) in text.split(':').enumerate() {
            if part == "lazy-init" && !sticky.lazy_init {
                sticky.lazy_init = true;
            } else if let Err(error) = sticky.volume.take(part) {
                // Only the first part can be the name, and only if it is no part of a volume.
                let named = index == 0 && matches!(error, ValueError::VolumePart(_));
                sticky.name = Some(if named { parse_name(part)? } else { return Err(error) });
            }
        }
        if sticky.volume.size_gb.is_none() { Err(ValueError::NoSize) } else { Ok(sticky) }
    }
}

impl fmt::Display for StickyVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}:")?;
        }
        write!(f, "{}{}", self.volume, if self.lazy_init { ":lazy-init" } else { "" })
    }
}
