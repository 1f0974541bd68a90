//! Images: which AMI a class boots from, and what EC2 says about it.
//!
//! An AMI never changes, so its facts are cached for good; the newest AMI of a name is looked up
//! again after a while.
//!
//! Not here: names in a configuration (`core::config::image`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{ArchitectureValues, Image};
use bullpen_core::class::{Architecture, ImageSearch, RunnerClass};
use bullpen_core::config::image::usual;
use bullpen_core::ids::ImageName;
use bullpen_core::ports::Fault;

use super::{answers, filter, lock};

/// How long the newest AMI of a name is cached. Images are built once a day at most.
const NEWEST_FOR: Duration = Duration::from_secs(10 * 60);

/// EC2's facts about an AMI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageFacts {
    /// The device name of its root disk.
    pub(super) root_device: String,
    /// The architecture it is built for, if we support it.
    pub(super) architecture: Option<Architecture>,
}

/// When an AMI was found, on the process's monotonic clock, and its id.
type Found = (Duration, String);

/// The AMIs that this process has looked up.
#[derive(Debug, Default)]
pub(super) struct Images {
    newest: Mutex<BTreeMap<(ImageSearch, Architecture), Found>>,
    facts: Mutex<BTreeMap<String, ImageFacts>>,
}

impl Images {
    /// The AMI that machines of a class boot from. `known`: the configured AMI of each image name.
    pub(super) async fn ami(
        &self,
        client: &Client,
        class: &RunnerClass,
        known: &BTreeMap<ImageName, String>,
        now: Duration,
    ) -> Result<String, Fault> {
        let base = &class.base;
        if let Some(ami) = &base.ami {
            return Ok(ami.clone());
        }
        let name = base.image.clone().unwrap_or_else(|| usual(class.architecture));
        match (known.get(&name), &base.search) {
            (Some(ami), _) => Ok(ami.clone()),
            (None, Some(search)) => self.newest(client, search, class.architecture, now).await,
            (None, None) => Err(Fault::Denied(format!(
                "class {}: no AMI is configured for image {name}: write `{name} = \"ami-…\"` under \
                 [images] of bullpen.toml, or describe it under `images:` of runs-on.yml",
                class.name
            ))),
        }
    }

    async fn newest(
        &self,
        client: &Client,
        search: &ImageSearch,
        architecture: Architecture,
        now: Duration,
    ) -> Result<String, Fault> {
        let key = (search.clone(), architecture);
        let found = lock(&self.newest).get(&key).cloned();
        if let Some((_, ami)) = found.filter(|(at, _)| now.saturating_sub(*at) < NEWEST_FOR) {
            return Ok(ami);
        }
        let images = client
            .describe_images()
            .owners(search.owner.as_deref().unwrap_or("self"))
            .filters(filter("name", [&search.name]))
            .filters(filter("state", ["available"]))
            .filters(filter("architecture", [ec2_name(architecture).as_str()]));
        let images = images.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let mut images = images.map_err(|error| answers::fault(&error))?;
        // All times are RFC 3339 in UTC, so text order is time order.
        images.sort_by(|one, other| one.creation_date().cmp(&other.creation_date()));
        let newest = images.last().and_then(|image| Some((image.image_id()?.to_owned(), image)));
        let Some((ami, image)) = newest else {
            return Err(Fault::Denied(format!(
                "no image of {} has the name {:?} here: check `name` and `owner` of the image",
                search.owner.as_deref().unwrap_or("this account"),
                search.name
            )));
        };
        self.remember(&ami, image);
        let mut newest = lock(&self.newest);
        newest.insert(key, (now, ami.clone()));
        Ok(ami)
    }

    /// The facts of an AMI, from the cache or from EC2.
    pub(super) async fn facts(&self, client: &Client, ami: &str) -> Result<ImageFacts, Fault> {
        let known = |images: &Self| lock(&images.facts).get(ami).cloned();
        if let Some(facts) = known(self) {
            return Ok(facts);
        }
        let answer = client.describe_images().image_ids(ami).send().await;
        let answer = answer.map_err(|error| answers::fault(&error))?;
        for image in answer.images() {
            self.remember(ami, image);
        }
        known(self).ok_or_else(|| {
            Fault::Denied(format!(
                "image {ami} is not in this region, or not for this account: correct it in [images] \
                 of bullpen.toml or in runs-on.yml"
            ))
        })
    }

    fn remember(&self, ami: &str, image: &Image) {
        let facts = ImageFacts {
            root_device: image.root_device_name().unwrap_or("/dev/sda1").to_owned(),
            architecture: [Architecture::X64, Architecture::Arm64]
                .into_iter()
                .find(|known| image.architecture() == Some(&ec2_name(*known))),
        };
        let mut known = lock(&self.facts);
        known.insert(ami.to_owned(), facts);
    }
}

/// EC2's name of an architecture.
pub(super) fn ec2_name(architecture: Architecture) -> ArchitectureValues {
    match architecture {
        Architecture::X64 => ArchitectureValues::X8664,
        Architecture::Arm64 => ArchitectureValues::Arm64,
    }
}
