//! The processes of Python models: which one belongs to a model, and whether it is alive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use triton_specdec::serving::process::Process;

/// A table of processes, removed with its test.
struct Table(PathBuf);

impl Table {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("specdec-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn add(&self, id: u32, name: &str, state: char, parent: u32, started: u32, line: &[&str]) {
        let folder = self.0.join(id.to_string());
        fs::create_dir_all(&folder).unwrap();
        // Behind the parent: sixteen more, then the start and what follows it.
        let stat = format!(
            "{id} ({name}) {state} {parent} {}{started} 0 0\n",
            "1 ".repeat(17)
        );
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cmdline"), line.join("\0")).unwrap();
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const STUB: &str = "/opt/backends/python/triton_python_backend_stub";
const DRAFT: [&str; 3] = [STUB, "/models/tensorrt_llm_draft/1/model.py", "x"];

#[test]
fn process_is_identified_by_model_and_parent() {
    let table = Table::new("known");
    fs::write(table.0.join("uptime"), "1").unwrap();
    table.add(10, "tritonserver", 'S', 1, 5, &["tritonserver"]);
    table.add(11, "stub", 'S', 10, 6, &DRAFT);
    table.add(12, "stub", 'S', 99, 7, &[STUB, "/models/other/1/model.py"]);
    let find = |model, server| Process::of(model, server, &table.0);
    let found = find("tensorrt_llm_draft", 10).unwrap();
    assert!(found.is_alive());
    // Another server's is none of its business, nor one whose name only begins alike.
    assert_eq!(find("other", 10), None);
    assert_eq!(find("tensorrt_llm", 10), None);
    assert_eq!(find("tensorrt_llm_draft", 99), None);
    assert!(find("other", 99).is_some());
    assert_eq!(Process::of("other", 99, Path::new("/no/such/table")), None);
}

#[test]
fn name_of_a_process_may_contain_any_character() {
    let table = Table::new("name");
    table.add(11, "a) S 3 (b", 'R', 10, 6, &DRAFT);
    let found = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    assert!(found.is_alive());
}

#[test]
fn zombie_is_not_alive() {
    for state in ['Z', 'X'] {
        let table = Table::new(&format!("dead{state}"));
        table.add(11, "stub", 'S', 10, 6, &DRAFT);
        let found = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
        table.add(11, "stub", state, 10, 6, &DRAFT);
        assert!(!found.is_alive());
        assert_eq!(Process::of("tensorrt_llm_draft", 10, &table.0), None);
    }
}

#[test]
fn later_process_with_the_same_id_is_another_one() {
    let table = Table::new("later");
    table.add(11, "stub", 'S', 10, 6, &DRAFT);
    let found = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    table.add(11, "stub", 'S', 10, 8, &DRAFT);
    assert!(!found.is_alive());
    let again = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    assert!(again.is_alive() && again != found);
    fs::remove_dir_all(table.0.join("11")).unwrap();
    assert!(!again.is_alive());
}

/// Ended with its test.
struct Real(Child);

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_of_this_machine_are_read() {
    let table = Table::new("real");
    let script = table.0.join("tensorrt_llm_draft/1/model.py");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    // `exec` would take another command line.
    fs::write(&script, "read line\n").unwrap();
    let child = Command::new("sh")
        .arg(&script)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Real(child);
    let find = || Process::of("tensorrt_llm_draft", std::process::id(), Path::new("/proc"));
    let begun = Instant::now();
    let found = loop {
        // Until the child has become what it was started as.
        if let Some(found) = find() {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(found.is_alive());
    child.0.kill().unwrap();
    while found.is_alive() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Dead and still in the process table, because no process has waited for it.
    assert_eq!(find(), None);
}
