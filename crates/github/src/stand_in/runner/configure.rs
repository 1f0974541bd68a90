//! `configure` and `remove`: a registration comes to be and goes.
//!
//! Not here: a JIT configuration, which needs neither (`listen`).

use std::io::Write;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock;

use super::console::Console;
use super::files::{self, RunnerSettings};
use super::inputs::Inputs;
use super::server::{Server, ServerAnswer, ServerTrouble};
use super::{Failed, exit};
use crate::stand_in::protocol::{Register, Registered, Remove};

/// How often a server in trouble is asked, as the official program does it.
const ATTEMPTS_MAX: u32 = 3;
/// The wait in between.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one request may take.
const WITHIN: Duration = Duration::from_secs(15);
const DEFAULT_LABELS: &[&str] = &["self-hosted", "Linux", "X64"];

/// Registers by token.
pub(super) async fn configure<C: Clock, W: Write>(
    inputs: &Inputs,
    clock: &C,
    console: &Console<'_, C, W>,
) -> Result<u8, Failed> {
    if files::is_configured(&inputs.root) {
        return Err(Failed::for_good(
            "Cannot configure the runner because it is already configured. To reconfigure the \
             runner, run 'config.cmd remove' or './config.sh remove' first.",
        ));
    }
    let url = needed(inputs, "url")?;
    let name = inputs.value("name").unwrap_or("stand-in");
    let wish = Register {
        jit: None,
        token: Some(Secret::new(needed(inputs, "token")?)),
        name: name.to_owned(),
        labels: labels(inputs)?,
        ephemeral: inputs.flag("ephemeral"),
        replace: inputs.flag("replace"),
    };
    let base = protocol_base(url)?;
    let server = Server::new(&base, clock);
    let answer = asked(clock, || server.post("/runners/register", None, &wish, WITHIN)).await?;
    let registered = match answer.status {
        201 => serde_json::from_slice::<Registered>(&answer.body).map_err(std::io::Error::from)?,
        409 => {
            let words = format!("A runner exists with the same name {name}.");
            return Err(Failed::for_good(words));
        }
        _ => return Err(Failed::for_good(answer.words())),
    };
    let settings = RunnerSettings {
        id: registered.runner_id,
        name: registered.name,
        ephemeral: wish.ephemeral,
        server: base,
        github: Some(url.to_owned()),
        work: inputs.value("work").unwrap_or("_work").into(),
    };
    settings.save(&inputs.root, &registered.session)?;
    console.say("√ Runner successfully added");
    console.say("√ Settings Saved.");
    Ok(exit::DONE)
}

/// Removes the registration at the server, then its files; with `--local` only these.
pub(super) async fn remove<C: Clock, W: Write>(
    inputs: &Inputs,
    clock: &C,
    console: &Console<'_, C, W>,
) -> Result<u8, Failed> {
    if !files::is_configured(&inputs.root) {
        console.say("Does not exist. Skipping Removing runner from the server");
        return Ok(exit::DONE);
    }
    if !inputs.flag("local") {
        let settings = RunnerSettings::load(&inputs.root)?;
        if settings.github.is_none() {
            // Nor can the official program: it does not know where to present the token.
            return Err(Failed::for_good(
                "A runner with a JIT configuration cannot remove itself.",
            ));
        }
        let token = Remove { token: Secret::new(needed(inputs, "token")?) };
        let server = Server::new(&settings.server, clock);
        let path = format!("/runners/{}/remove", settings.id);
        let answer = asked(clock, || server.post(&path, None, &token, WITHIN)).await?;
        match answer.status {
            204 => console.say("√ Runner removed successfully"),
            404 => console.say("Does not exist. Skipping Removing runner from the server"),
            _ => return Err(Failed::for_good(answer.words())),
        }
    }
    files::forget(&inputs.root)?;
    console.say("√ Removed .credentials");
    console.say("√ Removed .runner");
    Ok(exit::DONE)
}

fn needed<'a>(inputs: &'a Inputs, name: &str) -> Result<&'a str, Failed> {
    inputs.value(name).ok_or_else(|| {
        Failed::for_good(format!(
            "Invalid configuration provided for {name}. Terminating unattended configuration."
        ))
    })
}

/// The server behind an organisation's or repository's address.
fn protocol_base(url: &str) -> Result<String, Failed> {
    let bad = || Failed::for_good(format!("Invalid configuration provided for url: {url}"));
    let uri: hyper::Uri = url.parse().map_err(|_| bad())?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(authority)) => Ok(format!("http://{authority}/_stand-in")),
        _ => Err(bad()),
    }
}

fn labels(inputs: &Inputs) -> Result<Vec<String>, Failed> {
    let given = inputs.value("labels").unwrap_or_default().split(',').map(str::trim);
    let own = if inputs.flag("no-default-labels") { &[] } else { DEFAULT_LABELS };
    let mut labels: Vec<String> = Vec::new();
    for label in own.iter().copied().chain(given).filter(|label| !label.is_empty()) {
        if !labels.iter().any(|known| known.eq_ignore_ascii_case(label)) {
            labels.push(label.to_owned());
        }
    }
    if labels.is_empty() {
        return Err(Failed::for_good("A runner without default labels needs labels of its own."));
    }
    Ok(labels)
}

/// Asks a few times, as long as the server is in trouble.
async fn asked<C: Clock, F: Future<Output = Result<ServerAnswer, ServerTrouble>>>(
    clock: &C,
    ask: impl Fn() -> F,
) -> Result<ServerAnswer, Failed> {
    let mut last = None;
    for attempt in 0..ATTEMPTS_MAX {
        if attempt > 0 {
            clock.sleep(PAUSE).await;
        }
        match ask().await.and_then(ServerAnswer::settled) {
            Ok(answer) => return Ok(answer),
            Err(ServerTrouble(words)) => last = Some(words),
        }
    }
    Err(Failed::for_good(last.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_behind_the_organisations_address() {
        let base = protocol_base("http://127.0.0.1:8080/acme/app").unwrap();
        assert_eq!(base, "http://127.0.0.1:8080/_stand-in");
        for bad in ["https://github.com/acme", "acme", ""] {
            assert_eq!(protocol_base(bad).unwrap_err().code, 1, "{bad}");
        }
    }
}
