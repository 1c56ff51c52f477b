//! Compares the declarations with Triton's headers and with the library of a real server.
//!
//! `TRITON_HEADERS` is a directory with `tritonserver.h` and `tritonbackend.h`, and
//! `TRITON_LIBRARY` a `libtritonserver.so`. A test whose variable is not set compares nothing.

use std::env;
use std::fs;
use std::path::Path;

use triton_sys::{
    ENUMERATORS, TRITONBACKEND_API_VERSION_MAJOR, TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
};

/// A function: its name, the types of its arguments and of its result.
type Function = (&'static str, Vec<String>, String);

macro_rules! declared {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        fn declared_functions() -> Vec<Function> {
            vec![$((
                stringify!($name),
                vec![$(normalized_type(stringify!($type))),*],
                [$(normalized_type(stringify!($result)),)? String::new()][0].clone(),
            )),*]
        }
    };
}

triton_sys::for_each_function!(declared);

/// A type that the compiler printed, with the spacing of source code.
fn normalized_type(text: &str) -> String {
    single_spaced(text).replace("* ", "*")
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Both headers without comments, on one line.
fn headers() -> Option<String> {
    let folder = env::var_os("TRITON_HEADERS")?;
    let read = |name| fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    let text = read("tritonserver.h") + &read("tritonbackend.h");
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    Some(single_spaced(&lines.collect::<Vec<_>>().join(" ")))
}

/// A type of C as Rust writes it, such as `const char**` as `*mut *const c_char`.
fn rust_type(c: &str) -> String {
    let spaced = c.replace('*', " * ");
    let mut tokens = spaced.split_whitespace().filter(|token| *token != "struct");
    let mut is_const = false;
    let mut name = String::new();
    for token in tokens.by_ref() {
        if token == "const" {
            is_const = true;
        } else {
            name = match token {
                "char" => "c_char",
                "int" => "c_int",
                "void" => "c_void",
                "int64_t" => "i64",
                "uint64_t" => "u64",
                "uint32_t" => "u32",
                "size_t" => "usize",
                "double" => "f64",
                other => other,
            }
            .to_owned();
            break;
        }
    }
    for token in tokens {
        if token == "const" {
            is_const = true;
        } else {
            let pointer = if is_const { "*const" } else { "*mut" };
            (name, is_const) = (format!("{pointer} {name}"), false);
        }
    }
    name
}

/// The prototype of a function: the types of its arguments and of its result.
fn prototype(headers: &str, name: &str) -> (Vec<String>, String) {
    let (before, after) = headers
        .split_once(&format!(" {name}("))
        .unwrap_or_else(|| panic!("the headers have no {name}"));
    let (_, result) = before.rsplit_once("SPEC ").unwrap();
    let (arguments, _) = after.split_once(");").unwrap();
    // The last word of an argument is its name.
    let types = arguments.split(',').map(|argument| {
        let end = argument.trim_end().rfind([' ', '*']).unwrap();
        rust_type(&argument[..=end])
    });
    let result = match result {
        "void" => String::new(),
        other => rust_type(other),
    };
    (types.collect(), result)
}

#[test]
fn functions_are_those_of_the_headers() {
    let Some(headers) = headers() else { return };
    for (name, arguments, result) in declared_functions() {
        assert_eq!(prototype(&headers, name), (arguments, result), "{name}");
    }
}

#[test]
fn values_are_those_of_the_headers() {
    let Some(headers) = headers() else { return };
    for (name, value) in ENUMERATORS {
        let end = headers
            .match_indices(name)
            .map(|(start, _)| start)
            .find(|start| {
                !headers[start + name.len()..]
                    .starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
            .unwrap_or_else(|| panic!("the headers have no {name}"));
        // An enumerator without a value is one more than the one before it.
        let start = headers[..end].rfind('{').unwrap();
        let position = headers[start..end].matches(',').count();
        assert_eq!(position, *value as usize, "{name}");
    }
    for (name, value) in [
        (
            "#define TRITONBACKEND_API_VERSION_MAJOR ",
            TRITONBACKEND_API_VERSION_MAJOR,
        ),
        (
            "TRITONSERVER_REQUEST_RELEASE_ALL = ",
            TRITONSERVER_REQUEST_RELEASE_ALL,
        ),
        (
            "TRITONSERVER_RESPONSE_COMPLETE_FINAL = ",
            TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        ),
    ] {
        assert!(headers.contains(&format!("{name}{value}")), "{name}");
    }
}

#[test]
fn functions_are_in_the_library_of_the_server() {
    let Some(library) = env::var_os("TRITON_LIBRARY") else {
        return;
    };
    let bytes = fs::read(library).unwrap();
    for (name, _, _) in declared_functions() {
        // The symbol table separates names by NUL.
        let symbol = [b"\0", name.as_bytes(), b"\0"].concat();
        let exported = bytes.windows(symbol.len()).any(|window| window == symbol);
        assert!(exported, "{name} is not in the library");
    }
}
