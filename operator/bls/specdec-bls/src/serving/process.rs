//! Processes of Python models of this server.
//!
//! A model of Triton's python backend runs in a process of its own. When one dies, Triton 2.51
//! refuses what it is asked from then on, and never answers what it had been asked before.

use std::fs;
use std::path::{Path, PathBuf};

/// Places in /proc/PID/stat behind the program's name.
const STATE: usize = 0;
const PARENT: usize = 1;
const STARTED: usize = 19;

/// A process of this machine; its start time tells it from a later one of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    folder: PathBuf,
    started: String,
}

impl Process {
    /// The process of a Python model of the server `server`; None for an engine inside the server
    /// itself. `proc` is where processes are listed.
    pub fn of(model: &str, server: u32, proc: &Path) -> Option<Self> {
        let parent = server.to_string();
        let folders = fs::read_dir(proc).ok()?;
        folders
            .flatten()
            .map(|entry| entry.path())
            .filter(|folder| is_number(folder))
            .find_map(|folder| {
                let fields = fields(&folder);
                let ours = fields.get(PARENT) == Some(&parent) && !is_dead(&fields);
                // As Triton starts it: the stub, then `.../MODEL/VERSION/model.py`.
                let line = fs::read(folder.join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                let path = line.split('\0').nth(1).unwrap_or_default();
                let found = ours && path.rsplit('/').nth(2) == Some(model);
                let started = fields.get(STARTED).cloned().unwrap_or_default();
                found.then_some(Self { folder, started })
            })
    }

    /// Whether it still runs; one that has died stays in the table until its parent looks.
    pub fn alive(&self) -> bool {
        let fields = fields(&self.folder);
        fields.get(STARTED) == Some(&self.started) && !is_dead(&fields)
    }
}

fn is_number(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_dead(fields: &[String]) -> bool {
    matches!(
        fields.get(STATE).map(String::as_str),
        None | Some("Z" | "X")
    )
}

/// Fields of a process behind its name, which may hold blanks; empty when it is gone.
fn fields(folder: &Path) -> Vec<String> {
    let text = fs::read(folder.join("stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (_, behind) = text.rsplit_once(')').unwrap_or_default();
    behind.split_whitespace().map(str::to_owned).collect()
}
