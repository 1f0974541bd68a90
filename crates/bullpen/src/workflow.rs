//! The workflow commands: `provision`, `release`, `refresh`, `status`, `destroy`, `ledger verify`.
//!
//! Each reads its inputs and the files they name, and says what is wrong with them. What comes
//! after that is not built yet, and they say so.
//!
//! Not here: what inputs may be (`inputs`).

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use bullpen_core::config::{Config, Stack};

use crate::exit::Exit;
use crate::inputs::{
    self, CommonArgs, CommonInputs, Credential, Environment, Places, ProvisionArgs,
    ProvisionInputs, RefreshArgs, RefreshInputs, ReleaseArgs, ReleaseInputs, Released, StackArgs,
    StackInputs, UsageError, files, masks,
};
use crate::render;

/// `bullpen provision`.
pub(crate) fn provision(args: &ProvisionArgs) -> Exit {
    told(|environment| {
        let inputs = ProvisionInputs::read(args, environment, &fresh_name())?;
        let (config, _) = load(&inputs.common, environment)?;
        let machine = inputs.machine.machine(config.as_ref())?;
        let label = inputs.label();
        if let Err(error) = Places::of(environment).begin(&inputs.request, &label) {
            return Ok(format!("could not write GITHUB_OUTPUT: {error}"));
        }
        let (count, class) = (inputs.count, machine.class.name);
        Ok(format!("{label} is to be {count} of class {class}; `provision` is not built yet"))
    })
}

/// `bullpen release`.
pub(crate) fn release(args: &ReleaseArgs) -> Exit {
    told(|environment| {
        let inputs = ReleaseInputs::read(args, environment)?;
        load(&inputs.common, environment)?;
        let whose = match inputs.released {
            Released::Request(request) => format!("request {request}"),
            Released::Run(run) => format!("run {run}"),
        };
        Ok(format!("{whose} is to be released; `release` is not built yet"))
    })
}

/// `bullpen refresh`.
pub(crate) fn refresh(args: &RefreshArgs) -> Exit {
    told(|environment| {
        let inputs = RefreshInputs::read(args, environment)?;
        load(&inputs.common, environment)?;
        for place in &inputs.unused {
            render::talk(&format!("{place}: not used by the embedded engine"));
        }
        Ok("`refresh` is not built yet".to_owned())
    })
}

/// `bullpen status`.
pub(crate) fn status(args: &StackArgs) -> Exit {
    told(|environment| {
        StackInputs::read(args, environment)?;
        Ok("`status` is not built yet".to_owned())
    })
}

/// `bullpen destroy`.
pub(crate) fn destroy(args: &CommonArgs) -> Exit {
    told(|environment| {
        load(&CommonInputs::read(args, environment)?, environment)?;
        Ok("`destroy` is not built yet".to_owned())
    })
}

/// `bullpen ledger verify`.
pub(crate) fn ledger_verify(args: &StackArgs) -> Exit {
    told(|environment| {
        StackInputs::read(args, environment)?;
        Ok("`ledger verify` is not built yet".to_owned())
    })
}

/// Reads the environment, and ends with what is missing or with what is wrong.
fn told(command: impl FnOnce(&Environment) -> Result<String, UsageError>) -> Exit {
    match command(&inputs::environment()) {
        Ok(missing) => {
            render::error(&missing, None);
            Exit::Failed
        }
        Err(error) => {
            render::error(&error.to_string(), None);
            Exit::Usage
        }
    }
}

/// The files that the inputs name. Secrets are hidden before anything else is said, on stderr: the
/// runner reads commands there too, and what a script captures from stdout must not hold a secret.
fn load(
    common: &CommonInputs,
    environment: &Environment,
) -> Result<(Option<Config>, Stack), UsageError> {
    let key = match &common.github.credential {
        Some(Credential::App { key, .. }) => Some(files::app_key(key)?),
        Some(Credential::Token(_)) | None => None,
    };
    let mut secrets = common.github.secrets();
    secrets.extend(&key);
    for line in masks(&secrets, environment) {
        render::talk(&line);
    }
    Ok((files::config(&common.stack)?, files::stack(&common.stack, environment)?))
}

/// A name for a request that nobody named. The standard library seeds its hashers from the system's
/// entropy, which is all that is needed here.
fn fresh_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
