//! The SDK's default configuration, with our timeouts and without retries.
//!
//! Region, endpoint and credentials come from where every AWS tool finds them: environment
//! (`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL_SQS`),
//! profile, SSO, web identity, instance metadata. Retries are off: the engine retries, counts its
//! retries, and never takes a lost answer for a call that did not happen.
//!
//! Not here: names of tables and queues ([`crate::StackName`]).

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

/// How long connecting may take; within a region it takes milliseconds.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call may take, connecting included. After a longer claim another machine is the
/// better choice, and a heartbeat is due again.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(CALL_TIMEOUT.as_millis() > CONNECT_TIMEOUT.as_millis());

/// Why the AWS configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No region is configured.
    #[error("no AWS region is configured: set AWS_REGION, or `region` in the profile")]
    NoRegion,
    /// No credentials were found.
    #[error(
        "no AWS credentials were found: log in, for example with `aws sso login`, or set \
         AWS_PROFILE; `aws sts get-caller-identity` says who AWS thinks you are"
    )]
    NoCredentials(#[source] CredentialsError),
}

/// The SDK's default configuration with our timeouts, not loaded yet, for a caller that overrides
/// parts of it.
pub fn loader() -> ConfigLoader {
    let https = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(https)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(CALL_TIMEOUT))
}

/// Loads the configuration, in this region if one is given. Fails now rather than at every call if
/// the region or the credentials are missing.
pub async fn load(region: Option<&str>) -> Result<SdkConfig, ConfigError> {
    let loader = match region {
        Some(region) => loader().region(Region::new(region.to_owned())),
        None => loader(),
    };
    checked(loader.load().await).await
}

async fn checked(config: SdkConfig) -> Result<SdkConfig, ConfigError> {
    if config.region().is_none() {
        return Err(ConfigError::NoRegion);
    }
    let missing = || ConfigError::NoCredentials(CredentialsError::not_loaded("no provider"));
    let provider = config.credentials_provider().ok_or_else(missing)?;
    provider.provide_credentials().await.map_err(ConfigError::NoCredentials)?;
    Ok(config)
}

/// Our timeouts, with this one for the whole call.
pub(crate) fn timeouts(call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(call)
        .operation_timeout(call)
        .build()
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;

    use super::*;

    fn test_credentials() -> Credentials {
        Credentials::new("AKID", "not a secret", None, None, "tests")
    }

    #[tokio::test]
    async fn a_configuration_must_say_where_and_who() {
        let region = Region::new("eu-west-1");
        let nowhere = loader().region(None::<Region>).credentials_provider(test_credentials());
        let error = checked(nowhere.load().await).await.unwrap_err();
        assert!(error.to_string().contains("AWS_REGION"), "{error}");
        let anonymous = loader().region(region.clone()).no_credentials();
        let error = checked(anonymous.load().await).await.unwrap_err();
        assert!(error.to_string().contains("get-caller-identity"), "{error}");
        let both = loader().region(region).credentials_provider(test_credentials());
        assert!(checked(both.load().await).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_tried_again_behind_our_back() {
        let loader =
            loader().region(Region::new("eu-west-1")).credentials_provider(test_credentials());
        let config = loader.load().await;
        assert_eq!(config.retry_config().map(RetryConfig::max_attempts), Some(1));
        let timeouts = config.timeout_config().expect("timeouts are configured");
        assert_eq!(timeouts.connect_timeout(), Some(CONNECT_TIMEOUT));
        assert_eq!(timeouts.operation_attempt_timeout(), Some(CALL_TIMEOUT));
    }
}
