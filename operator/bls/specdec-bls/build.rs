//! Triton's functions are resolved in the server that loads the library. Tests and examples have
//! no server, and only call the functions that they define themselves.

fn main() {
    for kind in ["tests", "examples"] {
        println!("cargo::rustc-link-arg-{kind}=-Wl,--unresolved-symbols=ignore-all");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
