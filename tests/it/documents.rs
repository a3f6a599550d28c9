//! What the documents say of this tree is there: files, tests, messages, options.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::host::Host;
use crate::support::run::Dislock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// All files below a directory whose names end so.
pub(crate) fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// What stands between backticks, fenced blocks left out.
fn code(text: &str) -> Vec<&str> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The functions of a source file that have an attribute which makes tests of them.
fn tests_in(source: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, after)) = line.split_once("fn ") {
            let end = after.find(['(', '<']).unwrap_or(after.len());
            if is_test {
                tests.insert(&after[..end]);
            }
            is_test = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    tests
}

/// Whether the source tree has the test of this path: `it::…` in tests/it, all others in src.
fn is_test(path: &str) -> bool {
    let (dir, path) = match path.strip_prefix("it::") {
        Some(rest) => ("tests/it", rest),
        None => ("src", path),
    };
    let segments: Vec<&str> = path.split("::").collect();
    let (name, modules) = segments.split_last().unwrap();
    // A module is a file, or a block in the file of the module that it is in.
    (1..=modules.len()).any(|depth| {
        let base = root().join(dir).join(modules[..depth].join("/"));
        [base.with_extension("rs"), base.join("mod.rs")]
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .any(|source| {
                let inline = &modules[depth..];
                inline
                    .iter()
                    .all(|m| source.contains(&format!("mod {m} {{")))
                    && tests_in(&source).contains(name)
            })
    })
}

/// Files and tests that a text names.
fn named(text: &str) -> (Vec<&str>, Vec<&str>) {
    let code = code(text).into_iter();
    let (files, rest): (Vec<_>, Vec<_>) = code
        .filter(|code| !code.contains(' '))
        .partition(|code| code.starts_with("src/") || code.starts_with("tests/"));
    let tests = rest.into_iter().filter(|code| code.contains("::"));
    (files, tests.collect())
}

#[test]
fn every_guarantee_names_code_and_tests_that_exist() {
    let page = read("docs/GUARANTEES.md");
    let (_, promises) = page.split_once("\n## Promises\n").unwrap();
    let (promises, _) = promises.split_once("\n## ").unwrap();
    let promises: Vec<&str> = promises.split("\n### ").skip(1).collect();

    assert!(promises.len() > 15, "{promises:?}");
    for (n, promise) in promises.iter().enumerate() {
        let title = promise.lines().next().unwrap();
        assert!(title.starts_with(&format!("G{}. ", n + 1)), "{title}");
        let (files, tests) = named(promise);
        assert!(!files.is_empty(), "no code enforces {title}");
        assert!(!tests.is_empty(), "no test holds {title}");
    }
    let (files, tests) = named(&page);
    let missing: Vec<_> = files
        .iter()
        .filter(|file| !root().join(file).is_file())
        .chain(tests.iter().filter(|test| !is_test(test)))
        .collect();
    assert!(missing.is_empty(), "not in this tree: {missing:#?}");
}

#[test]
fn a_test_is_found_by_its_whole_path_only() {
    for there in [
        "it::documents::a_test_is_found_by_its_whole_path_only",
        "rules::lease::tests::everything_is_over_before_the_row_can_be_taken",
        "command::tests::guarding::a_stopped_guardian_does_not_delay_a_stop",
    ] {
        assert!(is_test(there), "{there}");
    }
    for missing in [
        "it::documents::root",
        "it::lease::a_test_is_found_by_its_whole_path_only",
        "it::documents::a_test_is_found_by_its_whole_path",
        "rules::lease::everything::everything_is_over_before_the_row_can_be_taken",
        "rules::slot::tests::everything_is_over_before_the_row_can_be_taken",
    ] {
        assert!(!is_test(missing), "{missing}");
    }
}

/// The documents that people read.
fn documents() -> Vec<PathBuf> {
    let mut documents = files(&root().join("docs"), ".md");
    documents.extend(files(&root().join("recipes"), ".md"));
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") {
            documents.push(path);
        }
    }
    documents
}

/// What a heading is called in a link, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut links = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for after in text.split("](").skip(1) {
            let target = after.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let place = format!("{target} in {}", document.display());
            assert!(linked.exists(), "{place}");
            if !heading.is_empty() {
                let linked = fs::read_to_string(linked).unwrap();
                let mut headings = linked.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{place}");
            }
        }
    }
    assert!(links > 30, "{links}");
}

/// The lines of a document's shell blocks that run dislock, without what is left open.
fn command_lines(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1);
    blocks
        .flat_map(|block| block.split("\n```").next().unwrap().lines())
        .filter(|line| line.starts_with("dislock ") && !line.contains('…'))
        .collect()
}

#[test]
fn every_line_that_a_document_shows_is_one_that_dislock_takes() {
    let host = Host::new();
    let mut lines = 0;
    for document in documents() {
        for line in command_lines(&fs::read_to_string(&document).unwrap()) {
            let finished = host.run(line, &[]);
            // A lock that is free cannot be released: 1.
            let expected = if line.contains("--release") { 1 } else { 0 };
            assert_eq!(finished.code, expected, "{line}: {finished:?}");
            lines += 1;
        }
    }
    assert!(lines > 10, "{lines}");
}

#[test]
fn every_option_is_documented_and_every_option_that_is_documented_exists() {
    let options = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        words
            .filter(|word| word.starts_with("--") && word.len() > 3)
            .map(String::from)
            .collect()
    };
    let help = Dislock::new("").run_args(["--help"]).stdout;
    let pages = read("docs/command-line.md") + &read("docs/administration.md");
    let mut offered = options(&help);
    offered.remove("--help");
    offered.remove("--version");

    assert!(offered.len() > 20, "{offered:?}");
    assert_eq!(offered, options(&pages));
}

/// The program's text, as far as it is no test and no comment: escapes undone, lines that continue a string
/// joined.
fn program() -> String {
    let mut program = String::new();
    for file in files(&root().join("src"), ".rs") {
        let path = file.to_string_lossy().into_owned();
        if path.contains("/tests/") || path.ends_with("/tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        let (source, _) = source
            .split_once("#[cfg(test)]\nmod tests {")
            .unwrap_or((&source, ""));
        let mut continued = false;
        for line in source
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("//"))
        {
            if !continued {
                program.push('\n');
            }
            continued = line.ends_with('\\');
            program.push_str(line.trim_end_matches('\\'));
        }
    }
    program.replace("\\\"", "\"")
}

#[test]
fn every_message_that_is_explained_is_one_of_the_programs() {
    let page = read("docs/troubleshooting.md");
    let program = program();
    let mut explained = 0;
    for section in page.split("\n## ") {
        let title = section.lines().next().unwrap();
        let rows = section
            .lines()
            .skip_while(|line| !line.starts_with("| message |"));
        if title == "From the server" {
            continue;
        }
        for row in rows.skip(2).take_while(|line| line.starts_with('|')) {
            for message in code(row.split('|').nth(1).unwrap()) {
                explained += 1;
                let known = message
                    .split('…')
                    .map(str::trim)
                    .filter(|part| part.len() > 2);
                assert!(known.clone().count() > 0, "{message}");
                for part in known {
                    assert!(
                        program.contains(part),
                        "{message:?}: no {part:?} in the program"
                    );
                }
            }
        }
    }
    assert!(explained > 50, "{explained}");
}

#[test]
fn every_event_that_is_logged_is_listed() {
    let page = read("docs/events.md");
    let program = program();
    let events: BTreeSet<&str> = program
        .split("event = \"")
        .skip(1)
        .map(|after| after.split('"').next().unwrap())
        .collect();

    assert!(events.len() > 10, "{events:?}");
    for event in events {
        assert!(page.contains(&format!("| `{event}` |")), "{event}");
    }
}
