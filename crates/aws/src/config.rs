//! Where AWS is and who we are there: the SDK's usual configuration, with our timeouts and without
//! retries.
//!
//! Region, endpoint and credentials are found as by every AWS tool: environment (`AWS_REGION`,
//! `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL_SQS`), profile, SSO, web
//! identity, instance metadata. Retries are off: a retry is the engine's, where it is counted and
//! where an answer that was lost is not taken for one that never came.
//!
//! Not here: names of tables and queues ([`crate::StackName`]).

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

/// How long a connection may take; within a region it takes milliseconds.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call may take, connecting included. A claim that takes longer is better made
/// elsewhere, and a heartbeat is due again by then.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(CALL_TIMEOUT.as_millis() > CONNECT_TIMEOUT.as_millis());

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing says where.
    #[error("no AWS region is configured: set AWS_REGION, or `region` in the profile")]
    NoRegion,
}

/// The usual configuration, still to be loaded: for a caller that knows some of it better.
pub fn loader() -> ConfigLoader {
    let https = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(https)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(CALL_TIMEOUT))
}

/// The usual configuration, in this region if one is named.
pub async fn load(region: Option<&str>) -> Result<SdkConfig, ConfigError> {
    let loader = match region {
        Some(region) => loader().region(Region::new(region.to_owned())),
        None => loader(),
    };
    let config = loader.load().await;
    if config.region().is_none() {
        return Err(ConfigError::NoRegion);
    }
    Ok(config)
}

/// Our timeouts, with this one for the call itself.
pub(crate) fn timeouts(call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(call)
        .operation_timeout(call)
        .build()
}
