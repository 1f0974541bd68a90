//! Reads one small file of a repository: its configuration.
//!
//! Not here: parsing the file (`bullpen_core`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ids::Repository;
use bullpen_core::ports::{Clock, Fault, FileRead};
use serde::Deserialize;

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::runs::repository_path;
use crate::wire::{Call, escaped};

#[derive(Deserialize)]
struct FileJson {
    #[serde(default)]
    encoding: String,
    #[serde(default)]
    content: String,
}

impl<C: Clock> GitHub<C> {
    /// Reads a file on the default branch. A file that is unchanged since `seen` does not count
    /// towards GitHub's hourly limit.
    pub(crate) async fn contents(
        &self,
        repository: &Repository,
        path: &str,
        seen: Option<&str>,
    ) -> Result<FileRead, Fault> {
        let segments: Vec<String> = path.split('/').map(escaped).collect();
        let path = format!("{}/contents/{}", repository_path(repository)?, segments.join("/"));
        let call =
            Call { seen: seen.map(str::to_owned), ..Call::get(CallPurpose::Configure, path) };
        let answer = self.call(&call).await?;
        match answer.status {
            304 => Ok(FileRead::Unchanged),
            404 => Ok(FileRead::Absent),
            _ => {
                let answer = answer.accepted(NotFoundMeans::Thing)?;
                let text = decoded(&answer.read("file")?)?;
                Ok(FileRead::Read { text, tag: answer.tag })
            }
        }
    }
}

fn decoded(file: &FileJson) -> Result<String, Fault> {
    let unreadable = |why: &str| Fault::Unreadable(format!("GitHub's file: {why}"));
    // GitHub omits the content of files above a megabyte, and lists directories in another shape.
    if file.encoding != "base64" {
        return Err(unreadable("it is too large, or not a file"));
    }
    // GitHub breaks the base64 text into lines.
    let packed: String = file.content.split_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(packed).map_err(|_| unreadable("it is not base64"))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is not text"))
}
