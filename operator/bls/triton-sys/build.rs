//! Lets the tests link without a Triton library. They compare declarations and call none of them.

fn main() {
    println!("cargo::rustc-link-arg-tests=-Wl,--unresolved-symbols=ignore-all");
    println!("cargo::rerun-if-changed=build.rs");
}
