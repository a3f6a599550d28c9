//! Whether all of the API is written down. What is `pub` in the source is public: the lint
//! `unreachable_pub` sees to that, and rustfmt to the shape of the lines that are looked for.

use std::fs;
use std::path::Path;

use crate::documents::files;

/// The public names in a source file; a method's has its type in front.
fn public_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut of = String::new();
    for line in source.lines() {
        if let Some(implemented) = line.strip_prefix("impl ") {
            of = implemented.split(' ').next().unwrap().to_owned();
        }
        let indented = line.starts_with(' ');
        let Some(item) = line.trim_start().strip_prefix("pub ") else {
            continue;
        };
        let mut words = item
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .skip_while(|word| matches!(*word, "async" | "unsafe" | "extern" | ""));
        let name = match words.next() {
            // Re-exports repeat a name; a module's items are looked for by themselves.
            Some("use" | "mod") => continue,
            Some("const") => words.find(|word| *word != "fn"),
            Some("fn" | "struct" | "enum" | "union" | "type" | "trait" | "static") => words.next(),
            field => field,
        };
        let name = name.unwrap_or_else(|| panic!("a public item without a name: {line}"));
        names.push(if indented {
            format!("{of}::{name}")
        } else {
            of = name.to_owned(); // whose fields may follow
            name.to_owned()
        });
    }
    names
}

#[track_caller]
fn assert_all_listed(dir: &str, list: &str) {
    let words: Vec<&str> = list
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let names: Vec<String> = files(&dir, ".rs")
        .iter()
        .filter(|file| {
            let file = file.strip_prefix(&dir).unwrap();
            // The async twin has its own list; the program and the fuzz targets' doors are no part of the
            // library's API.
            !["aio", "cli", "cli.rs", "fuzzing", "fuzzing.rs"]
                .iter()
                .any(|other| file.starts_with(other))
        })
        .flat_map(|file| public_names(&fs::read_to_string(file).unwrap()))
        .collect();
    assert!(names.len() > 20, "that cannot be all: {names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !words.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "new in the public API: {missing:?}");
}

#[test]
fn every_public_item_is_listed() {
    assert_all_listed("src", include_str!("../api.rs"));
}

#[test]
fn every_public_item_of_the_async_twin_is_listed() {
    assert_all_listed("src/aio", include_str!("aio.rs"));
}

#[test]
fn the_names_of_a_source_file() {
    let source = "pub const LIMIT: i32 = 1;\npub(crate) fn private() {}\n\
        impl Lease {\n    pub async fn renew(&self) {}\n    pub const fn ttl(&self) {}\n}\n\
        pub struct Row {\n    pub key: String,\n}\n";
    assert_eq!(
        public_names(source),
        ["LIMIT", "Lease::renew", "Lease::ttl", "Row", "Row::key"]
    );
}
