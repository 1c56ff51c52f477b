//! Lets tests and examples link without a Triton library. The server that loads the library defines
//! Triton's functions; a test that calls them defines them itself.

fn main() {
    for kind in ["tests", "examples"] {
        println!("cargo::rustc-link-arg-{kind}=-Wl,--unresolved-symbols=ignore-all");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
