//! Our own keys for a pool, `x-bullpen.pools.<name>`.
//!
//! A key is one entry of `pool_keys!`: its field, how it is read, what the unknown-key check knows and
//! what the schema says follow from that entry.
//!
//! Not here: what the keys change (`pool::Blueprint`, the engine), or RunsOn's keys (`pool`).

use std::time::Duration;

use super::finding::Findings;
use super::node::Node;
use super::pool::{Rollout, rollout};
use super::read::{MappingShape, boolean, count, duration, ignored, mapping, text, used};
use crate::ids::RunnerGroup;

/// How a key is written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// `immediate` or `rolling`.
    Rollout,
    /// A length of time above zero.
    Duration,
    /// A whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// The name of a runner group.
    Group,
}

/// One of our keys for a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolKey {
    /// Its name in the file.
    pub key: &'static str,
    /// What it is, in a sentence; begins with a space.
    pub doc: &'static str,
    /// How it is written.
    pub form: KeyForm,
}

macro_rules! pool_keys {
    ($($(#[doc = $doc:literal])+ $key:literal $field:ident: $form:ident;)+) => {
        /// Our keys for one pool.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct PoolKeys {
            $($(#[doc = $doc])+ pub $field: pool_keys!(@type $form),)+
        }

        /// Every key of [`PoolKeys`].
        pub const POOL_KEYS: &[PoolKey] = &[$(PoolKey {
            key: $key,
            doc: concat!($($doc),+),
            form: KeyForm::$form,
        }),+];

        /// The keys under `x-bullpen.pools.<name>`.
        pub const POOL_EXTENSION: MappingShape = MappingShape {
            name: "`x-bullpen.pools.<name>`",
            keys: &[
                $(used($key),)+
                ignored("slo", "pools are not sized by themselves yet"),
            ],
        };

        /// Reads our keys for one pool.
        pub(super) fn read(
            node: &Node,
            others: &[&MappingShape],
            findings: &mut Findings,
        ) -> PoolKeys {
            let Some(fields) = mapping(node, &POOL_EXTENSION, others, findings) else {
                return PoolKeys::default();
            };
            $(let $field = fields.get($key).and_then(|node| {
                pool_keys!(@read $form, node, $key, findings)
            });)+
            PoolKeys { $($field: pool_keys!(@kept $form, $field),)+ }
        }
    };
    (@type Rollout) => { Option<Rollout> };
    (@type Duration) => { Option<Duration> };
    (@type Count) => { Option<u32> };
    (@type Flag) => { bool };
    (@type Group) => { Option<RunnerGroup> };
    (@read Rollout, $node:ident, $key:literal, $findings:ident) => { rollout($node, $findings) };
    (@read Duration, $node:ident, $key:literal, $findings:ident) => {
        duration($node, $key, $findings)
    };
    (@read Count, $node:ident, $key:literal, $findings:ident) => { count($node, $key, $findings) };
    (@read Flag, $node:ident, $key:literal, $findings:ident) => { boolean($node, $key, $findings) };
    (@read Group, $node:ident, $key:literal, $findings:ident) => {
        text($node, $key, $findings).map(RunnerGroup::new)
    };
    (@kept Flag, $value:expr) => { $value.unwrap_or(false) };
    (@kept $form:ident, $value:expr) => { $value };
}

pool_keys! {
    /// How outdated machines are replaced; by the pool's size if absent.
    "rollout" rollout: Rollout;
    /// The age at which a hot machine is replaced; the stack's limit if absent.
    "hot-lifetime" hot_lifetime: Duration;
    /// The most machines that the pool may have.
    "max" max: Count;
    /// Whether requests of the class may claim its idle machines.
    "share" share: Flag;
    /// Whether its hot machines are spot instances.
    "spot" spot: Flag;
    /// The runner group at GitHub for its runners.
    "group" group: Group;
}
