//! Launch templates: what a launch specifies besides size and place.
//!
//! A template is named after its content and has one version, which EC2 never changes: a launch
//! that names it gets that content or an error, and two processes that want the same content create
//! the same template. [`super::prepare`] removes unwanted templates.
//!
//! Not here: size and place ([`super::launch`]), the script ([`crate::boot`]).

use aws_sdk_ec2::types::{
    LaunchTemplateBlockDeviceMappingRequest, LaunchTemplateEbsBlockDevice,
    LaunchTemplateEbsBlockDeviceRequest, LaunchTemplateHttpTokensState,
    LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateTagSpecificationRequest, RequestLaunchTemplateData, ResourceType,
    ResponseLaunchTemplateData, ShutdownBehavior, VolumeType,
};
use bullpen_core::class::{BootSource, RunnerClass};
use bullpen_core::labels::volume::Volume;
use bullpen_core::spec_hash::digest_hex;
use serde::Serialize;

use super::settings::Ec2Settings;
use super::tags;
use crate::names::StackName;

/// How many hex digits of the digest are in a template's name.
const DIGEST_CHARS: usize = 12;
/// The only version of a template.
pub(super) const VERSION: &str = "1";

/// A machine's root disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Disk {
    device: Option<String>,
    size_gib: Option<u32>,
    kind: String,
    iops: Option<u32>,
    throughput: Option<u32>,
}

impl Disk {
    fn of(base: &BootSource) -> Self {
        let volume = base.volume.unwrap_or_default();
        let Volume { size_gb, kind, throughput_mibps, iops } = volume;
        Self {
            device: base.root_device.clone(),
            size_gib: size_gb.max(base.disk_gib_min),
            kind: kind.map_or("gp3", |kind| kind.as_str()).to_owned(),
            iops,
            throughput: throughput_mibps,
        }
    }
}

/// The content of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Template {
    stack: String,
    pub(super) ami: String,
    disk: Disk,
    profile: String,
    security_groups: Vec<String>,
    hops: u8,
    user_data: String,
}

impl Template {
    /// The template for machines of this class, from this image, with this boot script (in base64).
    pub(super) fn of(
        class: &RunnerClass,
        ami: String,
        settings: &Ec2Settings,
        user_data: String,
    ) -> Self {
        Self {
            stack: settings.stack.to_string(),
            ami,
            disk: Disk::of(&class.base),
            profile: settings.instance_profile.clone(),
            security_groups: settings.security_groups.clone(),
            hops: settings.metadata_hops,
            user_data,
        }
    }

    /// The name, from the digest of the content.
    pub(super) fn name(&self) -> String {
        let content = serde_json::to_vec(self).expect("a template has string keys only");
        format!("bullpen-{}-{}", self.stack, &digest_hex(&content)[..DIGEST_CHARS])
    }

    /// The content as EC2 wants it. `root_device`: the device name of the image's root disk.
    pub(super) fn data(&self, stack: &StackName, root_device: &str) -> RequestLaunchTemplateData {
        let device = self.disk.device.as_deref().unwrap_or(root_device);
        RequestLaunchTemplateData::builder()
            .image_id(&self.ami)
            .iam_instance_profile(self.profile())
            .set_security_group_ids(Some(self.security_groups.clone()))
            .block_device_mappings(self.mapping(device))
            .metadata_options(self.metadata())
            // Terminate at power-off: the agent powers its machine off when done, and so does the
            // watchdog.
            .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
            .user_data(&self.user_data)
            .tag_specifications(
                LaunchTemplateTagSpecificationRequest::builder()
                    .resource_type(ResourceType::Volume)
                    .set_tags(Some(tags::of_stack(stack)))
                    .build(),
            )
            .build()
    }

    fn profile(&self) -> LaunchTemplateIamInstanceProfileSpecificationRequest {
        let profile = LaunchTemplateIamInstanceProfileSpecificationRequest::builder();
        let is_arn = self.profile.starts_with("arn:");
        let profile = if is_arn { profile.arn(&self.profile) } else { profile.name(&self.profile) };
        profile.build()
    }

    fn mapping(&self, device: &str) -> LaunchTemplateBlockDeviceMappingRequest {
        let number = |value: Option<u32>| value.and_then(|value| i32::try_from(value).ok());
        let disk = LaunchTemplateEbsBlockDeviceRequest::builder()
            .encrypted(true)
            .delete_on_termination(true)
            .volume_type(VolumeType::from(self.disk.kind.as_str()))
            .set_volume_size(number(self.disk.size_gib))
            .set_iops(number(self.disk.iops))
            .set_throughput(number(self.disk.throughput));
        LaunchTemplateBlockDeviceMappingRequest::builder()
            .device_name(device)
            .ebs(disk.build())
            .build()
    }

    fn metadata(&self) -> LaunchTemplateInstanceMetadataOptionsRequest {
        LaunchTemplateInstanceMetadataOptionsRequest::builder()
            .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::Enabled)
            .http_tokens(LaunchTemplateHttpTokensState::Required)
            .http_put_response_hop_limit(i32::from(self.hops))
            .build()
    }

    /// Whether the template that EC2 has matches in the parts that matter. EC2 fills in defaults,
    /// which are not compared.
    pub(super) fn is(&self, found: &ResponseLaunchTemplateData) -> bool {
        let profile = found.iam_instance_profile();
        let profile = profile.and_then(|profile| profile.arn().or(profile.name()));
        let metadata = found.metadata_options();
        let disk = found.block_device_mappings().first().and_then(|mapping| mapping.ebs());
        found.image_id() == Some(&self.ami)
            && found.user_data() == Some(&self.user_data)
            && profile == Some(&self.profile)
            && found.security_group_ids() == self.security_groups
            && disk.and_then(LaunchTemplateEbsBlockDevice::encrypted) == Some(true)
            && metadata.and_then(|metadata| metadata.http_tokens())
                == Some(&LaunchTemplateHttpTokensState::Required)
            && found.instance_initiated_shutdown_behavior() == Some(&ShutdownBehavior::Terminate)
    }
}
