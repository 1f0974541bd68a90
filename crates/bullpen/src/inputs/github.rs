//! The inputs about GitHub: the repository or organisation, GitHub's addresses, and the credential.
//!
//! The workflow's own `GITHUB_TOKEN` cannot register a runner. It is kept apart, to read runs, and
//! is never a credential.
//!
//! Not here: calls to GitHub (`bullpen-github`).

use std::path::PathBuf;

use bullpen_core::config::stack::{Github as GithubSection, GithubCredential};
use bullpen_core::ids::Repository;
use bullpen_core::mailbox::Secret;

use super::files;
use super::given::{Given, Reader};
use super::values::{address, line, path, secret_text, secret_word};
use super::{Environment, UsageError};

/// GitHub's own addresses.
const API: &str = "https://api.github.com";
const SERVER: &str = "https://github.com";
/// The beginning of a key in PEM. No path begins like this.
pub(crate) const PEM: &str = "-----BEGIN ";
/// The longest name: a repository's has at most 100 characters, an owner's 39.
const NAME_CHARS_MAX: usize = 100;

/// The arguments about GitHub.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "GitHub")]
pub(crate) struct GithubArgs {
    /// The repository as OWNER/NAME, or an organisation [env: `GITHUB_REPOSITORY`]
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) repository: Option<String>,
    /// The address of GitHub's API [env: `GITHUB_API_URL`] [default: github.com's]
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// GitHub's address [env: `GITHUB_SERVER_URL`] [default: github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) server_url: Option<String>,
    /// A file with a personal access token; pass the token itself as INPUT_GITHUB-TOKEN
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    pub(crate) github_token_file: Option<String>,
    /// The token of a caller in this process. It has no flag, because other users can read
    /// arguments.
    #[arg(skip)]
    pub(crate) github_token: Option<Secret>,
    /// The id of a GitHub App, with --app-key
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) app_id: Option<String>,
    /// A file with the App's private key in PEM; pass the key itself as INPUT_APP-KEY
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = wrapped)]
    pub(crate) app_key: Option<Secret>,
    /// The directory of the runner program [default: with the stand-in, the stand-in's runner]
    #[arg(long, value_name = "DIR")]
    pub(crate) runner_dir: Option<String>,
}

/// Wraps the text at once, so that no printed argument shows it.
#[expect(clippy::unnecessary_wraps, reason = "clap asks for a result")]
fn wrapped(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// The scope of the runners' registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One repository.
    Repository(Repository),
    /// An organisation.
    Organisation(String),
}

/// The credential for GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A personal access token.
    Token(Secret),
    /// A file with a personal access token.
    TokenFile(PathBuf),
    /// A GitHub App.
    App {
        /// The App's id.
        id: u64,
        /// Its private key.
        key: AppKey,
    },
}

/// An App's private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AppKey {
    /// The key itself, in PEM.
    Text(Secret),
    /// The key's file.
    File(PathBuf),
}

/// The checked inputs about GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GithubInputs {
    /// The scope of the runners' registration.
    pub(crate) scope: Option<Scope>,
    /// The API's address, without a slash at its end.
    pub(crate) api_url: String,
    /// GitHub's address, without a slash at its end.
    pub(crate) server_url: String,
    /// The credential; `None` if the command uses the tokens that `refresh` keeps in the ledger.
    pub(crate) credential: Option<Credential>,
    /// More Apps with the same permissions, and their keys.
    pub(crate) more_apps: Vec<(u64, Secret)>,
    /// The workflow's own token, which only reads runs.
    pub(crate) run_reader: Option<Secret>,
    /// The directory of the runner program.
    pub(crate) runner_dir: Option<PathBuf>,
}

impl GithubInputs {
    /// Reads the inputs.
    pub(crate) fn read(args: &GithubArgs, reader: Reader<'_>) -> Result<Self, UsageError> {
        let repository =
            reader.input_or("repository", args.repository.as_ref(), "GITHUB_REPOSITORY");
        let api = reader.input_or("api-url", args.api_url.as_ref(), "GITHUB_API_URL");
        let server = reader.input_or("server-url", args.server_url.as_ref(), "GITHUB_SERVER_URL");
        let runner_dir = reader.input("runner-dir", args.runner_dir.as_ref());
        let run_reader = reader.variable("GITHUB_TOKEN");
        Ok(Self {
            scope: repository.map(|given| scope(&given)).transpose()?,
            api_url: api.map_or_else(|| Ok(API.to_owned()), |given| address(&given))?,
            server_url: server.map_or_else(|| Ok(SERVER.to_owned()), |given| address(&given))?,
            credential: credential(args, reader)?,
            more_apps: Vec::new(),
            run_reader: run_reader.map(|given| secret_word(&given)).transpose()?,
            runner_dir: runner_dir.map(|given| path(&given)).transpose()?,
        })
    }

    /// Fills absent inputs from `bullpen.toml`.
    pub(crate) fn completed_by(
        mut self,
        section: &GithubSection,
        environment: &Environment,
    ) -> Result<Self, UsageError> {
        let url = section.url.trim_end_matches('/');
        if self.api_url == API && self.server_url == SERVER && url != SERVER {
            // Every Enterprise Server has its API there.
            self.api_url = format!("{url}/api/v3");
            url.clone_into(&mut self.server_url);
        }
        if self.credential.is_none() {
            self.credential = match &section.credential {
                Some(GithubCredential::Token(place)) => {
                    Some(Credential::Token(files::secret("github.token", place, environment)?))
                }
                Some(GithubCredential::App { id, private_key }) => {
                    let key = files::secret("github.private-key", private_key, environment)?;
                    for (id, place) in &section.more_apps {
                        let key = files::secret("github.more-apps", place, environment)?;
                        self.more_apps.push((*id, key));
                    }
                    Some(Credential::App { id: *id, key: AppKey::Text(key) })
                }
                None => None,
            };
        }
        Ok(self)
    }

    /// Every secret that is loaded; a secret in a file is not.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        let credential = match &self.credential {
            Some(Credential::Token(secret) | Credential::App { key: AppKey::Text(secret), .. }) => {
                Some(secret)
            }
            Some(Credential::TokenFile(_) | Credential::App { key: AppKey::File(_), .. })
            | None => None,
        };
        let more = self.more_apps.iter().map(|(_, key)| key);
        credential.into_iter().chain(&self.run_reader).chain(more).collect()
    }
}

fn scope(given: &Given) -> Result<Scope, UsageError> {
    let legal = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
        let dots = part.chars().all(|c| c == '.');
        part.len() <= NAME_CHARS_MAX && !dots && part.chars().all(plain)
    };
    let word = given.word();
    match word.split_once('/') {
        Some((owner, name)) if legal(owner) && legal(name) => {
            Ok(Scope::Repository(Repository::new(word)))
        }
        None if legal(word) => Ok(Scope::Organisation(word.to_owned())),
        _ => Err(given.refuse("a repository as OWNER/NAME, or an organisation")),
    }
}

fn credential(args: &GithubArgs, reader: Reader<'_>) -> Result<Option<Credential>, UsageError> {
    let revealed = |flag: &Option<Secret>| flag.as_ref().map(|flag| flag.reveal().to_owned());
    let token = token(args, reader)?;
    let id = reader.input("app-id", args.app_id.as_ref());
    let key = reader.input("app-key", revealed(&args.app_key).as_ref());
    match (token, id, key) {
        (None, None, None) => Ok(None),
        (Some((_, credential)), None, None) => Ok(Some(credential)),
        (None, Some(id), Some(key)) => {
            Ok(Some(Credential::App { id: app_id(&id)?, key: app_key(&key)? }))
        }
        (None, Some(alone), None) => {
            Err(alone.refuse_unseen("an App needs its key too; give --app-key"))
        }
        (None, None, Some(alone)) => {
            Err(alone.refuse_unseen("an App needs its id too; give --app-id"))
        }
        (Some((token, _)), Some(other), _) | (Some((token, _)), None, Some(other)) => {
            let why = format!("{} is given as well; give a token or an App, not both", other.place);
            Err(token.refuse_unseen(&why))
        }
    }
}

/// The given token, or the file with it, as a credential.
fn token(args: &GithubArgs, reader: Reader<'_>) -> Result<Option<(Given, Credential)>, UsageError> {
    if let Some(secret) = &args.github_token {
        let given = Given { place: "the caller's token".to_owned(), text: String::new() };
        return Ok(Some((given, Credential::Token(secret.clone()))));
    }
    let text = reader.variable_of("github-token");
    let file = reader.input("github-token-file", args.github_token_file.as_ref());
    match (text, file) {
        (None, None) => Ok(None),
        (Some(text), None) => {
            let credential = access_token(&text, reader)?;
            Ok(Some((text, credential)))
        }
        (None, Some(file)) => {
            // The value may be a token, so the error does not show it.
            let why = "the value, not shown, is not a path";
            let path = path(&file).map_err(|_| file.refuse_unseen(why))?;
            Ok(Some((file, Credential::TokenFile(path))))
        }
        (Some(text), Some(file)) => {
            let why = format!("{} is given as well; give one of them", file.place);
            Err(text.refuse_unseen(&why))
        }
    }
}

fn access_token(given: &Given, reader: Reader<'_>) -> Result<Credential, UsageError> {
    let own = reader.variable("GITHUB_TOKEN");
    if own.is_some_and(|own| own.word() == given.word()) {
        let why = "this is the workflow's own GITHUB_TOKEN, which cannot register runners; give a \
                   personal access token or an App";
        return Err(given.refuse_unseen(why));
    }
    secret_word(given).map(Credential::Token)
}

fn app_id(given: &Given) -> Result<u64, UsageError> {
    let word = line(given).map_err(|_| given.refuse("the number of a GitHub App"))?;
    let plain = word.bytes().all(|byte| byte.is_ascii_digit());
    let id = word.parse::<u64>().ok().filter(|&id| plain && id > 0);
    id.ok_or_else(|| given.refuse("the number of a GitHub App"))
}

fn app_key(given: &Given) -> Result<AppKey, UsageError> {
    if given.word().starts_with(PEM) {
        if given.is_argument() {
            let why = "other users of this machine can read arguments; give the path of a file, or \
                       the key as INPUT_APP-KEY";
            return Err(given.refuse_unseen(why));
        }
        return secret_text(given).map(AppKey::Text);
    }
    // Another value may be a key without its first line, so the error does not show it.
    let file = path(given);
    file.map(AppKey::File)
        .map_err(|_| given.refuse_unseen("the value, not shown, is neither PEM nor a path"))
}
