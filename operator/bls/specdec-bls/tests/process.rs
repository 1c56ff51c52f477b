//! Finds the process of a Python model, and detects its death.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use triton_specdec::serving::process::Process;

/// A directory in the form of /proc. It is removed after its test.
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
        // Seventeen other fields lie between the parent and the start time.
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
    let process = find("tensorrt_llm_draft", 10).unwrap();
    assert!(process.is_alive());
    // A process of another server does not match, nor that of a model whose name is longer.
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
    let process = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    assert!(process.is_alive());
}

#[test]
fn zombie_is_not_alive() {
    for state in ['Z', 'X'] {
        let table = Table::new(&format!("dead{state}"));
        table.add(11, "stub", 'S', 10, 6, &DRAFT);
        let process = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
        table.add(11, "stub", state, 10, 6, &DRAFT);
        assert!(!process.is_alive());
        assert_eq!(Process::of("tensorrt_llm_draft", 10, &table.0), None);
    }
}

#[test]
fn later_process_with_the_same_id_is_another_one() {
    let table = Table::new("later");
    table.add(11, "stub", 'S', 10, 6, &DRAFT);
    let process = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    table.add(11, "stub", 'S', 10, 8, &DRAFT);
    assert!(!process.is_alive());
    let again = Process::of("tensorrt_llm_draft", 10, &table.0).unwrap();
    assert!(again.is_alive() && again != process);
    fs::remove_dir_all(table.0.join("11")).unwrap();
    assert!(!again.is_alive());
}

/// A real process, killed after its test.
struct RealProcess(Child);

impl Drop for RealProcess {
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
    // `read` is a builtin of the shell. Any other command could replace the command line.
    fs::write(&script, "read line\n").unwrap();
    let child = Command::new("sh")
        .arg(&script)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = RealProcess(child);
    let find = || Process::of("tensorrt_llm_draft", std::process::id(), Path::new("/proc"));
    let started = Instant::now();
    let process = loop {
        // The child has its command line only after its `exec`.
        if let Some(process) = find() {
            break process;
        }
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(process.is_alive());
    child.0.kill().unwrap();
    while process.is_alive() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Dead and still in the process table, because no process has waited for it.
    assert_eq!(find(), None);
}
