//! Reads facts for `bullpen doctor`: the Apps' permissions and installations, wider webhooks, and
//! the runner version that GitHub offers.
//!
//! Not here: judging them (`bullpen doctor`).

use std::collections::BTreeMap;

use bullpen_core::class::Architecture;
use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ports::{Clock, Fault};
use serde::Deserialize;

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::limits::{PAGES_MAX, PER_PAGE};
use crate::login::Account;
use crate::settings::{Scope, is_name};
use crate::wire::Call;

/// The permissions that every App of ours needs.
const NEEDED: &[(&str, &str)] =
    &[("actions", WRITE), ("checks", WRITE), ("contents", READ), ("metadata", READ)];
/// The permission for managing an organisation's or a repository's runners.
const RUNNERS_OF_ORGANISATION: &str = "organization_self_hosted_runners";
const RUNNERS_OF_REPOSITORY: &str = "administration";
const WRITE: &str = "write";
const READ: &str = "read";

/// The prefix and suffix of a runner archive's name.
const ARCHIVE: (&str, &str) = ("actions-runner-linux-", ".tar.gz");

#[derive(Deserialize)]
struct InstallationJson {
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    repository_selection: Option<String>,
}

#[derive(Deserialize)]
struct InstalledJson {
    account: Option<AccountJson>,
}

#[derive(Deserialize)]
struct AccountJson {
    #[serde(default)]
    login: Option<String>,
}

#[derive(Deserialize)]
struct AppJson {
    #[serde(default)]
    slug: String,
}

/// One App of ours, as GitHub describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppStanding {
    /// The App's name in URLs.
    pub slug: String,
    /// Whether any account can install it; `None` if GitHub does not tell.
    pub is_public: Option<bool>,
    /// The accounts that it is installed on; an enterprise's name is empty.
    pub accounts: Vec<String>,
}

#[derive(Deserialize)]
struct HookJson {
    id: u64,
    #[serde(default)]
    active: bool,
    #[serde(default)]
    events: Vec<String>,
}

#[derive(Deserialize)]
struct DownloadJson {
    filename: String,
}

impl<C: Clock> GitHub<C> {
    /// The permissions that the first App needs and lacks, such as `checks: write`; `None` if the
    /// login is a token, whose permissions GitHub does not tell.
    pub async fn lacking_permissions(&self) -> Result<Option<Vec<String>>, Fault> {
        let call = Call::get(CallPurpose::Configure, format!("{}/installation", self.scope.path()));
        let Some(answer) = self.in_time(self.call_as_app(&call)).await? else { return Ok(None) };
        let has: InstallationJson = answer.accepted(NotFoundMeans::Scope)?.read("installation")?;
        let is_organisation = matches!(self.scope, Scope::Organization(_));
        Ok(Some(lacking(&has.permissions, is_organisation)))
    }

    /// All our Apps; empty if the login is a token. Only the owner of a private App can install it,
    /// on the owner's own account.
    pub async fn apps(&self) -> Result<Vec<AppStanding>, Fault> {
        let mut all = Vec::new();
        for account in self.accounts() {
            let me = Call::get(CallPurpose::Configure, "/app".to_owned()).housekeeping();
            let call = account.call_as_app(&self.wire, &me);
            let Some(answer) = self.in_time(call).await? else { continue };
            let AppJson { slug } = answer.accepted(NotFoundMeans::Scope)?.read("App")?;
            let is_public = self.is_public(&slug).await?;
            all.push(AppStanding { slug, is_public, accounts: self.installed_on(account).await? });
        }
        Ok(all)
    }

    /// Without a credential, GitHub shows public Apps and hides private ones.
    async fn is_public(&self, slug: &str) -> Result<Option<bool>, Fault> {
        if !is_name(slug) {
            return Ok(None);
        }
        let call = Call::get(CallPurpose::Configure, format!("/apps/{slug}")).housekeeping();
        let answer = self.in_time(self.wire.send_anonymously(&call)).await?;
        Ok(match answer.status {
            200 => Some(true),
            404 => Some(false),
            // The server requires a credential, or limits the rate.
            _ => None,
        })
    }

    /// The accounts that this App is installed on.
    async fn installed_on(&self, account: &Account) -> Result<Vec<String>, Fault> {
        let mut accounts = Vec::new();
        let mut next = Some(format!("/app/installations?per_page={PER_PAGE}"));
        for _ in 0..PAGES_MAX {
            let Some(path) = next else { return Ok(accounts) };
            let call = Call::get(CallPurpose::Configure, path).housekeeping();
            let page = account.call_as_app(&self.wire, &call);
            let Some(answer) = self.in_time(page).await? else { return Ok(accounts) };
            let answer = answer.accepted(NotFoundMeans::Scope)?;
            let page: Vec<InstalledJson> = answer.read("list of installations")?;
            // An enterprise's installation has no login, and does not belong to the scope.
            let name = |one: InstalledJson| one.account.and_then(|account| account.login);
            accounts.extend(page.into_iter().map(|one| name(one).unwrap_or_default()));
            next = answer.next;
        }
        // So many accounts are enough for a verdict.
        Ok(accounts)
    }

    /// The account that owns the scope.
    pub fn owner(&self) -> &str {
        match &self.scope {
            Scope::Organization(name) => name,
            Scope::Repository { owner, .. } => owner,
        }
    }

    /// Describes the webhooks that cover more than the one repository of the scope. Empty for an
    /// organisation's scope, and where GitHub does not tell.
    pub async fn wider_hooks(&self) -> Result<Vec<String>, Fault> {
        let Scope::Repository { owner, .. } = &self.scope else { return Ok(Vec::new()) };
        let mut wider = Vec::new();
        let call = Call::get(CallPurpose::Configure, format!("{}/installation", self.scope.path()));
        if let Some(answer) = self.in_time(self.call_as_app(&call)).await? {
            let has: InstallationJson =
                answer.accepted(NotFoundMeans::Scope)?.read("installation")?;
            let is_wide = has.repository_selection.as_deref() == Some("all");
            let what = format!("the App is installed on all repositories of {owner}");
            wider.extend(is_wide.then_some(what));
        }
        let call =
            Call::get(CallPurpose::Configure, format!("/orgs/{owner}/hooks?per_page={PER_PAGE}"))
                .housekeeping();
        let answer = self.in_time(self.call(&call)).await?;
        // Most tokens and Apps may not list these hooks, and a personal account has none.
        if answer.status != 200 {
            return Ok(wider);
        }
        let all: Vec<HookJson> = answer.read("list of webhooks")?;
        let sends_jobs = |hook: &&HookJson| {
            hook.active && hook.events.iter().any(|event| event == "workflow_job" || event == "*")
        };
        let name = |hook: &HookJson| format!("webhook {} of the organisation {owner}", hook.id);
        wider.extend(all.iter().filter(sends_jobs).map(name));
        Ok(wider)
    }

    /// The version of the runner program that GitHub offers for Linux on this architecture.
    pub async fn offered_runner(
        &self,
        architecture: Architecture,
    ) -> Result<Option<String>, Fault> {
        let call = Call::get(
            CallPurpose::Configure,
            format!("{}/actions/runners/downloads", self.scope.path()),
        );
        let answer = self.in_time(self.call(&call.housekeeping())).await?;
        let all: Vec<DownloadJson> =
            answer.accepted(NotFoundMeans::Scope)?.read("list of downloads")?;
        let version = |one: &DownloadJson| version_of(&one.filename, architecture);
        Ok(all.iter().find_map(version))
    }
}

fn lacking(has: &BTreeMap<String, String>, is_organisation: bool) -> Vec<String> {
    let runners = if is_organisation { RUNNERS_OF_ORGANISATION } else { RUNNERS_OF_REPOSITORY };
    let needed = NEEDED.iter().copied().chain([(runners, WRITE)]);
    // Write permission includes read.
    let lacks = |(name, much): &(&str, &str)| {
        let has = has.get(*name).map(String::as_str);
        has != Some(WRITE) && has != Some(*much)
    };
    needed.filter(lacks).map(|(name, much)| format!("{name}: {much}")).collect()
}

/// The version in the name of a runner archive, if the archive is for this architecture.
pub fn version_of(archive: &str, architecture: Architecture) -> Option<String> {
    let name = archive.rsplit('/').next().unwrap_or(archive);
    let rest = name.strip_prefix(ARCHIVE.0)?.strip_suffix(ARCHIVE.1)?;
    let version = rest.strip_prefix(architecture.as_str())?.strip_prefix('-')?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    version.split('.').all(is_number).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permissions_are_named_and_extra_ones_accepted() {
        let has = |all: &[(&str, &str)]| {
            all.iter().map(|(name, much)| ((*name).to_owned(), (*much).to_owned())).collect()
        };
        let most = has(&[
            ("actions", "write"),
            ("checks", "read"),
            ("contents", "write"),
            ("metadata", "read"),
            ("administration", "write"),
        ]);
        assert_eq!(lacking(&most, false), ["checks: write"]);
        let wanted = ["checks: write", "organization_self_hosted_runners: write"];
        assert_eq!(lacking(&most, true), wanted);
    }

    #[test]
    fn a_version_is_read_from_an_archives_name() {
        let x64 = |name: &str| version_of(name, Architecture::X64);
        let name = "actions-runner-linux-x64-2.325.0.tar.gz";
        assert_eq!(x64(name).as_deref(), Some("2.325.0"));
        assert_eq!(x64(&format!("https://example.com/a/{name}")).as_deref(), Some("2.325.0"));
        assert_eq!(version_of(name, Architecture::Arm64), None);
        assert_eq!(x64("actions-runner-linux-x64-noruntime-2.325.0.tar.gz"), None);
        assert_eq!(x64("runner.tar.gz"), None);
    }
}
