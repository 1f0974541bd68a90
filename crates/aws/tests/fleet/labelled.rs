//! The limit on launch templates that labels create; the least recently used go first.
//!
//! Not here: templates of configured classes (`calls`, `lost`).

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_ec2::types::{RequestLaunchTemplateData, ResourceType, TagSpecification};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::ClassName;
use bullpen_core::labels::volume::Volume;
use bullpen_core::ports::{Clock as _, Fault, Fleet as _, Site as _};
use bullpen_core::time::Timestamp;

use crate::world::{Fleet, HOUR, IMAGE, World, block_on, class, request};

/// The most templates that labels may create.
const TEMPLATES_MAX: u32 = 100;
/// The test EC2 dates templates by the wall clock; this moves our clock past that.
const DECADE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A job whose labels ask for a disk of a size that no class has.
fn with_disk(intent: &str, size_gb: u32) -> LaunchRequest {
    let mut class = class();
    class.name = ClassName::new(format!("~2cpu-x64-{size_gb}"));
    class.base.volume = Some(Volume { size_gb: Some(size_gb), ..Volume::default() });
    LaunchRequest { class, ..request(intent, 1) }
}

impl World {
    async fn templates(&self) -> BTreeSet<String> {
        // The test EC2 returns only one page, and few templates on it by default.
        let call = self.client.describe_launch_templates().max_results(200);
        let pages = call.into_paginator().items().send();
        let all = pages.collect::<Result<Vec<_>, _>>().await.expect("EC2 answers");
        all.into_iter().filter_map(|found| found.launch_template_name).collect()
    }

    /// Launches a machine with each of these disks, a second apart.
    async fn launch_with_disks(&self, fleet: &Fleet, sizes: impl IntoIterator<Item = u32>) {
        for size in sizes {
            let now = self.calls("CreateFleet");
            let wanted = with_disk(&format!("n-{size}-{now}"), size);
            let launched = fleet.launch(&wanted).await.expect("EC2 has capacity");
            assert_eq!(launched.machines.len(), 1, "{launched:?}");
            self.advance(Duration::from_secs(1));
        }
    }
}

#[test]
fn labels_make_so_many_templates_and_no_more() {
    block_on(async {
        let world = World::new().await;
        world.advance(DECADE);
        let (fleet, configured) = (world.fleet(), world.templates().await);
        world.launch_with_disks(&fleet, [50]).await;
        let first: BTreeSet<String> =
            world.templates().await.difference(&configured).cloned().collect();
        world.launch_with_disks(&fleet, 51..50 + TEMPLATES_MAX).await;
        let full = world.templates().await;
        assert_eq!(full.len(), configured.len() + 100);

        // While all templates are in use, only a job with a further disk size waits.
        let refused =
            fleet.launch(&with_disk("n-more", 500)).await.expect_err("one template too many");
        assert!(
            matches!(&refused, Fault::Unavailable(why) if why.contains("100 launch templates"))
        );
        assert_eq!(world.templates().await, full);
        fleet.launch(&request("n-configured", 1)).await.expect("a configured class has its own");

        // An hour later, a further size replaces the least recently used template.
        world.advance(HOUR);
        world.launch_with_disks(&fleet, [50]).await;
        world.launch_with_disks(&fleet, [501]).await;
        let now = world.templates().await;
        assert_eq!(now.len(), full.len());
        assert_eq!(full.difference(&now).count(), 1);
        assert!(now.is_superset(&first) && now.is_superset(&configured));
        // A launch that needs a removed template creates it again.
        world.launch_with_disks(&fleet, [51]).await;
        assert_eq!(world.templates().await.len(), full.len());

        // Another process does not know these uses; a launch recreates a template that it removes.
        world.advance(HOUR);
        let other = world.fleet();
        world.launch_with_disks(&other, [502]).await;
        world.launch_with_disks(&fleet, [50, 501]).await;
        assert_eq!(world.templates().await.len(), full.len());
    });
}

/// Several processes may each create one template too many at once; the next refresh removes them.
#[test]
fn a_refresh_removes_templates_above_the_limit() {
    block_on(async {
        let world = World::new().await;
        let before = world.templates().await;
        world.launch_with_disks(&world.fleet(), [50]).await;
        let all = world.templates().await;
        let name = all.difference(&before).next().expect("a new template");
        let call = world.client.describe_launch_templates().launch_template_names(name);
        let template = call.send().await.expect("an answer").launch_templates()[0].clone();
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(template.tags().to_vec()))
            .build();
        for number in 0..TEMPLATES_MAX + 3 {
            let data = RequestLaunchTemplateData::builder().image_id(IMAGE).build();
            let call = world.client.create_launch_template().launch_template_data(data);
            let call = call.launch_template_name(format!("bullpen-contract-{number:012x}"));
            call.tag_specifications(tags.clone()).send().await.expect("EC2 has capacity");
        }
        let at = template.create_time().and_then(|at| at.to_millis().ok());
        let at = at.expect("a creation time");
        let ahead = Timestamp::from_millis(at).since(world.clock.now());
        world.advance(ahead + HOUR);
        let done = world.fleet().prepare(&[class()], true).await.expect("an answer");
        assert_eq!(done.len(), 4, "{done:?}");
        let left = world.templates().await;
        assert_eq!(left.len(), before.len() + 100);
        assert!(left.is_superset(&before), "a configured class keeps its own");
    });
}
