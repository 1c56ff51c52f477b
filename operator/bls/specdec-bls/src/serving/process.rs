//! Finds the processes of Python models of this server, to detect their death.
//!
//! A model of Triton's python backend runs in a process of its own. When that process dies, Triton
//! 2.51 refuses later calls, but never completes the calls that were in flight.

use std::fs;
use std::path::{Path, PathBuf};

/// Positions in /proc/PID/stat after the program's name.
const STATE: usize = 0;
const PARENT: usize = 1;
const STARTED: usize = 19;

/// A process; its start time distinguishes it from a later one with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    folder: PathBuf,
    started: String,
}

impl Process {
    /// The process of a Python model of the server with process id `server`; None for an engine
    /// inside the server itself. `proc` is the directory of all processes.
    pub fn of(model: &str, server: u32, proc: &Path) -> Option<Self> {
        let parent = server.to_string();
        let folders = fs::read_dir(proc).ok()?;
        folders
            .flatten()
            .map(|entry| entry.path())
            .filter(|folder| is_number(folder))
            .find_map(|folder| {
                let fields = fields(&folder);
                let is_child = fields.get(PARENT) == Some(&parent) && !is_dead(&fields);
                // Triton starts the stub with the argument `.../MODEL/VERSION/model.py`.
                let line = fs::read(folder.join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                let path = line.split('\0').nth(1).unwrap_or_default();
                let is_model = is_child && path.rsplit('/').nth(2) == Some(model);
                let started = fields.get(STARTED).cloned().unwrap_or_default();
                is_model.then_some(Self { folder, started })
            })
    }

    /// Whether the process still runs. A zombie, whose parent has not waited for it, does not.
    pub fn is_alive(&self) -> bool {
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

/// Fields of a process after its name, which may contain blanks; empty without the process.
fn fields(folder: &Path) -> Vec<String> {
    let text = fs::read(folder.join("stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (_, after_name) = text.rsplit_once(')').unwrap_or_default();
    after_name.split_whitespace().map(str::to_owned).collect()
}
