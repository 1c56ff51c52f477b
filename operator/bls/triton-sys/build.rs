//! The tests compare declarations, and never call Triton: its functions stay unresolved.

fn main() {
    println!("cargo::rustc-link-arg-tests=-Wl,--unresolved-symbols=ignore-all");
    println!("cargo::rerun-if-changed=build.rs");
}
