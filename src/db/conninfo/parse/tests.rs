use std::collections::BTreeMap;

use super::*;

/// The strings of a flat JSON object, keys and values in turn.
fn json_strings(json: &str) -> Vec<String> {
    let mut strings = Vec::new();
    let mut chars = json.chars();
    while chars.by_ref().any(|c| c == '"') {
        let mut string = String::new();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => string.push(match chars.next().unwrap() {
                    'n' => '\n',
                    c => c,
                }),
                c => string.push(c),
            }
        }
        strings.push(string);
    }
    strings
}

#[test]
fn every_case_is_read_as_libpq_reads_it() {
    let cases = include_str!("../../../../tests/data/conninfo_cases.tsv");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in cases.lines().skip(1) {
        let (string, expected) = line.split_once('\t').unwrap();
        let string = string.replace("\\n", "\n");
        let ours = parse(&string).ok().map(|settings| {
            settings
                .iter()
                .map(|(k, v)| (k.to_owned(), String::from_utf8(v.to_vec()).unwrap()))
                .collect::<BTreeMap<_, _>>()
        });
        let theirs = (expected != "ERROR").then(|| {
            json_strings(expected)
                .chunks(2)
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect()
        });
        count += 1;
        if ours != theirs {
            wrong.push(format!("{string}: {ours:?}, not {theirs:?}"));
        }
    }
    assert_eq!(count, 62);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// More of libpq 18's readings, asked of the library itself.
#[test]
fn corner_cases_are_read_as_libpq_reads_them() {
    let cases: [(&str, &[(&str, &str)]); 29] = [
        ("", &[]),
        (" ", &[]),
        ("postgresql://", &[]),
        ("postgresql://u:@h/", &[("host", "h"), ("user", "u")]),
        ("postgresql://:p@h", &[("host", "h"), ("password", "p")]),
        (
            "postgresql://u:p?@h",
            &[("host", "h"), ("password", "p?"), ("user", "u")],
        ),
        (
            "postgres://u:p:q@h",
            &[("host", "h"), ("password", "p:q"), ("user", "u")],
        ),
        ("postgresql://h?host=", &[("host", "")]),
        ("postgresql://?host=x", &[("host", "x")]),
        ("postgresql://h?host=x&", &[("host", "x")]),
        (
            "postgresql://h:5/x?%68ost=z",
            &[("dbname", "x"), ("host", "z"), ("port", "5")],
        ),
        (
            "postgresql://u:p@[::1]:5,h2",
            &[
                ("host", "::1,h2"),
                ("password", "p"),
                ("port", "5,"),
                ("user", "u"),
            ],
        ),
        (
            "postgresql://,h/x",
            &[("dbname", "x"), ("host", ",h"), ("port", ",")],
        ),
        (
            "postgresql://h:1:2/x",
            &[("dbname", "x"), ("host", "h"), ("port", "1:2")],
        ),
        (
            "postgresql://h/db/x?sslmode=a?b",
            &[("dbname", "db/x"), ("host", "h"), ("sslmode", "a?b")],
        ),
        (
            "postgresql://h/db#frag",
            &[("dbname", "db#frag"), ("host", "h")],
        ),
        (
            "postgresql://h?ssl=tru%65",
            &[("host", "h"), ("sslmode", "require")],
        ),
        (
            "postgresql://h/ db ?sslmode= require ",
            &[("dbname", "db"), ("host", "h"), ("sslmode", "require")],
        ),
        (
            "postgresql://h/?application_name=%20a%20",
            &[("application_name", " a "), ("host", "h")],
        ),
        (
            "postgresql://h?dbname=postgresql://z/q",
            &[("dbname", "postgresql://z/q"), ("host", "h")],
        ),
        ("host=a host=b", &[("host", "b")]),
        ("requiressl=1", &[("sslmode", "require")]),
        ("requiressl=0", &[("sslmode", "prefer")]),
        ("host=a\\ b", &[("host", "a b")]),
        ("host = a\\b", &[("host", "ab")]),
        ("host=a\\", &[("host", "a")]),
        ("host==b", &[("host", "=b")]),
        (
            "host= 'x' port=  dbname=q",
            &[("host", "x"), ("port", "dbname=q")],
        ),
        (
            "host=a\tport=5\ndbname=c",
            &[("dbname", "c"), ("host", "a"), ("port", "5")],
        ),
    ];
    for (string, expected) in cases {
        let settings = parse(string).unwrap_or_else(|e| panic!("{string}: {e}"));
        let ours: Vec<_> = settings
            .iter()
            .map(|(k, v)| (k, std::str::from_utf8(v).unwrap()))
            .collect();
        assert_eq!(ours, expected, "{string}");
    }
}

#[test]
fn malformed_strings_are_refused() {
    for string in [
        "postgresql://u@/x?sslmode",
        "postgresql://[::1",
        "postgresql://[]/x",
        "postgresql://[::1]x/d",
        "postgresql://u%",
        "postgresql://h?a=%zz",
        "postgresql://h/x?host=%00",
        "postgresql://h?host=a=b",
        "postgresql://h?&host=x",
        "postgresql://h?ssl=false",
        "postgresql://h?ssl%6d=true",
        "postgresql://h?servicefile=x",
        "postgresql://h?=y",
        "postgresql://u:p w@h",
        "postgresql://a@b?x/@c",
        "host",
        "host='a",
        "host='a\\",
        "host=a'b c",
        "host='a'x dbname=y",
        "a b=c",
        "ho st=x",
        "=x",
        "HOST=x",
        "authtype=x",
        "host=a\0",
    ] {
        assert!(parse(string).is_err(), "{string}");
    }
}

proptest::proptest! {
    #[test]
    fn no_string_makes_reading_it_panic(
        start in "|postgresql://|postgres://u:p@",
        rest in "([a-z]{0,4}[=:@/?&,%' \\\\\\[\\]]{0,2}|\\PC){0,12}",
    ) {
        let _read_or_refused = parse(&(start + &rest));
    }
}
