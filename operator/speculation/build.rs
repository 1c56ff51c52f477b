//! Triton's functions are found in the server that loads the library; tests and examples never
//! call them, and have no server to find them in.

fn main() {
    for kind in ["tests", "examples"] {
        println!("cargo::rustc-link-arg-{kind}=-Wl,--unresolved-symbols=ignore-all");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
