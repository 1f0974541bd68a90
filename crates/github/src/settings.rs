//! A client's settings: GitHub's address, the scope of its runners, and the login.
//!
//! Not here: reading files or the environment; the crate `bullpen` does that and passes the texts.

use std::fmt;

use bullpen_core::mailbox::Secret;
use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};

use crate::app::AppKey;

/// The address of the REST interface of github.com.
pub const GITHUB_API: &str = "https://api.github.com";

/// A client's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The REST interface's base: `https://api.github.com`, or `https://HOST/api/v3` for GitHub
    /// Enterprise Server. Plain `http` is for loopback only.
    pub base_url: String,
    /// The organisation or repository whose runners the client manages.
    pub scope: Scope,
    /// The client's credential.
    pub login: Login,
    /// More Apps with the same permissions. GitHub gives each App its own budget, and the client
    /// calls as the App with the most left. Webhooks come only from the App of `login`.
    pub more_apps: Vec<App>,
    /// The stack's prefix of runner names. The client neither lists nor changes other runners.
    pub prefix: String,
    /// The runner group of JIT runners; 1 is the default group, and a repository's only group.
    pub runner_group: u64,
    /// Certificates in PEM to trust besides the bundled ones, for a private server.
    pub extra_roots: Option<String>,
}

impl Settings {
    /// Settings for github.com, with the default group and the bundled certificates.
    pub fn new(scope: Scope, login: Login, prefix: &str) -> Self {
        Self {
            base_url: GITHUB_API.to_owned(),
            scope,
            login,
            more_apps: Vec::new(),
            prefix: prefix.to_owned(),
            runner_group: 1,
            extra_roots: None,
        }
    }
}

/// The owner of the runners: an organisation or a repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The organisation of this name.
    Organization(String),
    /// One repository.
    Repository {
        /// Its owner.
        owner: String,
        /// Its name without the owner.
        name: String,
    },
}

impl Scope {
    /// Parses `ORG` or `OWNER/NAME`.
    pub fn parse(text: &str) -> Result<Self, BadSettings> {
        let bad = || BadSettings::Scope { text: text.to_owned() };
        match text.split_once('/') {
            None if is_name(text) => Ok(Self::Organization(text.to_owned())),
            Some((owner, name)) if is_name(owner) && is_name(name) => {
                Ok(Self::Repository { owner: owner.to_owned(), name: name.to_owned() })
            }
            _ => Err(bad()),
        }
    }

    /// The path prefix of this scope's resources.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Organization(name) => format!("/orgs/{name}"),
            Self::Repository { owner, name } => format!("/repos/{owner}/{name}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Organization(name) => f.write_str(name),
            Self::Repository { owner, name } => write!(f, "{owner}/{name}"),
        }
    }
}

/// Whether this can be a name at GitHub; no other text may become part of a path.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text != "." && text != ".." && text.chars().all(fits)
}

/// A credential for GitHub.
#[derive(Clone, Debug)]
pub enum Login {
    /// A personal access token.
    Token(Secret),
    /// A GitHub App.
    App(App),
}

/// A GitHub App and its installation.
#[derive(Clone, Debug)]
pub struct App {
    /// Its client id, or its numeric id.
    pub id: String,
    /// Its private key.
    pub key: AppKey,
    /// Its installation; if `None`, the client looks it up by the scope.
    pub installation: Option<u64>,
}

/// Why settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// The base is not the address of a REST interface.
    #[error("{url:?} is not a base address such as https://api.github.com or https://HOST/api/v3")]
    BaseUrl {
        /// The given text.
        url: String,
    },
    /// The client would send a secret unencrypted over the network.
    #[error("{url:?} is not encrypted; plain http is for loopback only")]
    InTheClear {
        /// The given text.
        url: String,
    },
    /// The scope names neither an organisation nor a repository.
    #[error("{text:?} is neither an organisation nor OWNER/NAME of a repository")]
    Scope {
        /// The given text.
        text: String,
    },
    /// Without a prefix, the client would manage every runner of the scope.
    #[error("the prefix of runner names is empty")]
    NoPrefix,
    /// The additional certificates are invalid.
    #[error("could not use the additional certificates")]
    Roots(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A token and Apps have different permissions, so that the client cannot choose between them.
    #[error("more Apps need an App as login, not a token")]
    MixedLogins,
    /// The token does not fit into a header.
    #[error("the token is empty or has characters that a header cannot carry")]
    Token,
}

/// The parsed address of the REST interface.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
}

impl Base {
    pub(crate) fn parse(url: &str) -> Result<Self, BadSettings> {
        let bad = || BadSettings::BaseUrl { url: url.to_owned() };
        let parts = url.parse::<Uri>().map_err(|_| bad())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(bad());
        };
        let path = parts.path_and_query.as_ref().map_or("/", |path| path.as_str());
        if path.contains('?') || authority.as_str().contains('@') {
            return Err(bad());
        }
        if scheme != Scheme::HTTPS && !is_loopback(authority.host()) {
            return Err(BadSettings::InTheClear { url: url.to_owned() });
        }
        Ok(Self { scheme, authority, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// The server's name and port, for messages.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The URI of `path`, which this crate builds and which begins with a slash.
    pub(crate) fn at(&self, path: &str) -> Option<Uri> {
        let path = format!("{}{path}", self.prefix);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(path).build().ok()
    }

    /// The path of a link in GitHub's answer, relative to this base. Ignores the link's host, so
    /// that the client sends the credential only to the base.
    pub(crate) fn within(&self, link: &str) -> Option<String> {
        let uri = link.parse::<Uri>().ok()?;
        let path = uri.path_and_query()?.as_str();
        path.strip_prefix(&self.prefix).filter(|rest| rest.starts_with('/')).map(str::to_owned)
    }
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_joined_with_paths_and_links() {
        for (url, base) in [
            ("https://api.github.com", "https://api.github.com"),
            ("https://ghe.example/api/v3/", "https://ghe.example/api/v3"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            let parsed = Base::parse(url).unwrap();
            let link = format!("{base}/orgs/o?page=2");
            assert_eq!(parsed.at("/orgs/o?page=2").unwrap().to_string(), link);
            assert_eq!(parsed.within(&link).unwrap(), "/orgs/o?page=2");
        }
    }

    #[test]
    fn a_link_to_another_host_resolves_to_the_base() {
        let base = Base::parse("https://ghe.example/api/v3").unwrap();
        assert_eq!(base.within("https://evil.example/api/v3/orgs").as_deref(), Some("/orgs"));
        assert_eq!(base.within("https://ghe.example/other/orgs"), None);
        assert_eq!(base.within("https://ghe.example/api/v3x"), None);
    }

    #[test]
    fn an_invalid_base_is_refused() {
        for url in ["", "api.github.com", "/api/v3", "https://u:p@h/", "https://h/?q=1"] {
            assert!(matches!(Base::parse(url), Err(BadSettings::BaseUrl { .. })), "{url}");
        }
        let clear = Base::parse("http://ghe.example/api/v3").unwrap_err();
        assert!(clear.to_string().contains("not encrypted"), "{clear}");
    }

    #[test]
    fn scopes_are_valid_names_only() {
        assert_eq!(Scope::parse("acme").unwrap().path(), "/orgs/acme");
        assert_eq!(Scope::parse("acme/app").unwrap().path(), "/repos/acme/app");
        for text in ["", "a/", "/a", "a/b/c", "a b", "a/..", "a?x", "a/b#c", "ä"] {
            assert!(Scope::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_show_no_secret() {
        let login = Login::Token(Secret::new("ghp_hidden"));
        let settings = Settings::new(Scope::parse("acme").unwrap(), login, "bp-");
        assert!(!format!("{settings:?}").contains("hidden"));
    }
}
